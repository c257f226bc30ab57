//! An application with RocketMQ's `rocketmq` crate that does what it is asked to: the orders of
//! python/agent.py, but for those that the crate has nothing for (`LACKS` in tests/compat/agents.py).

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{AckMessageEntry, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::oneshot;

const CLOSE_TRIES: u32 = 600;

/// What is to become of a half, and where to say how that went.
type Decision = (String, oneshot::Sender<Result<(), String>>);

struct Simple {
    consumer: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
}

#[derive(Clone)]
enum Client {
    Producer(Arc<Producer>),
    Simple(Arc<Simple>),
}

struct Half {
    producer: String,
    decide: oneshot::Sender<Decision>,
}

#[derive(Default)]
struct Table {
    clients: HashMap<String, Client>,
    received: Vec<Arc<MessageView>>,
    halves: HashMap<usize, Half>,
    halves_made: usize,
}

struct App {
    tls: bool,
    table: Mutex<Table>,
}

fn say(line: Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn text(order: &Value, key: &str) -> String {
    order[key].as_str().unwrap_or("").to_string()
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

/// The body of a message; as often as is asked for.
fn body_of(given: &Value) -> Vec<u8> {
    text(given, "body")
        .repeat(given["times"].as_u64().unwrap_or(1) as usize)
        .into_bytes()
}

fn builder_of(given: &Value) -> MessageBuilder {
    let mut builder = MessageBuilder::builder()
        .set_topic(text(given, "topic"))
        .set_body(body_of(given));
    if let Some(tag) = given["tag"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(keys) = given["keys"].as_array() {
        builder = builder.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if let Some(properties) = given["properties"].as_object() {
        let pairs = properties
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")));
        builder = builder.set_properties(pairs.collect::<HashMap<_, _>>());
    }
    if let Some(group) = given["group"].as_str() {
        builder = builder.set_message_group(group);
    }
    if let Some(due_ms) = given["deliver_at_ms"].as_i64() {
        // It takes whole seconds.
        builder = builder.set_delivery_timestamp(due_ms / 1000);
    }
    builder
}

fn shown(view: &MessageView) -> Value {
    let body = view.body();
    let mut keys = view.keys().to_vec();
    keys.sort();
    json!({
        "message_id": view.message_id(), "topic": view.topic(),
        "body": String::from_utf8_lossy(&body[..body.len().min(200)]), "size": body.len(),
        "tag": view.tag().unwrap_or(""), "keys": keys, "properties": view.properties(),
        "group": view.message_group().unwrap_or(""), "attempt": view.delivery_attempt(),
        "handle": view.receipt_handle(), "at_ms": now_ms(),
    })
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl App {
    fn options(&self, order: &Value) -> ClientOption {
        let mut options = ClientOption::default();
        // It has commas between addresses.
        options.set_access_url(text(order, "endpoints").replace(';', ","));
        options.set_enable_tls(self.tls);
        options.set_timeout(Duration::from_secs(
            order["timeout_s"].as_u64().unwrap_or(3),
        ));
        if let Some(seconds) = order["await_s"].as_u64() {
            options.set_long_polling_timeout(Duration::from_secs(seconds));
        }
        if let Some(keys) = order["keys"].as_array() {
            options.set_access_key(keys[0].as_str().unwrap());
            options.set_secret_key(keys[1].as_str().unwrap());
        }
        options
    }

    fn producer(&self, name: &str) -> Result<Arc<Producer>, String> {
        match self.table.lock().unwrap().clients.get(name) {
            Some(Client::Producer(producer)) => Ok(producer.clone()),
            _ => Err(format!("there is no producer {name}")),
        }
    }

    fn simple(&self, name: &str) -> Result<Arc<Simple>, String> {
        match self.table.lock().unwrap().clients.get(name) {
            Some(Client::Simple(simple)) => Ok(simple.clone()),
            _ => Err(format!("there is no consumer {name}")),
        }
    }

    fn keep(&self, order: &Value, client: Client) -> Value {
        self.table
            .lock()
            .unwrap()
            .clients
            .insert(text(order, "name"), client);
        json!({})
    }

    async fn make_producer(&self, order: &Value) -> Result<Value, String> {
        let topics: Vec<_> = order["topics"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let mut option = ProducerOption::default();
        option.set_topics(topics);
        let options = self.options(order);
        let (name, answer) = (text(order, "name"), text(order, "check"));
        let made = if answer.is_empty() {
            Producer::new(option, options)
        } else {
            let check = move |_: String, view: MessageView| {
                let body = String::from_utf8_lossy(view.body()).to_string();
                say(json!({"event": "check", "name": name, "body": body}));
                // What it has rolled back, or would, has this in its body.
                if answer == "commit" && !body.contains("rollback") {
                    TransactionResolution::COMMIT
                } else {
                    TransactionResolution::ROLLBACK
                }
            };
            Producer::new_transaction_producer(option, options, Box::new(check))
        };
        let mut producer = made.map_err(words)?;
        producer.start().await.map_err(words)?;
        Ok(self.keep(order, Client::Producer(Arc::new(producer))))
    }

    async fn send(&self, order: &Value) -> Result<Value, String> {
        let producer = self.producer(&text(order, "name"))?;
        let message = builder_of(&order["message"]).build().map_err(words)?;
        let receipt = producer.send(message).await.map_err(words)?;
        Ok(json!({"message_id": receipt.message_id()}))
    }

    /// A transaction is bound to the call that made it, so it waits there for what is decided.
    async fn half(&self, order: &Value) -> Result<Value, String> {
        let name = text(order, "name");
        let producer = self.producer(&name)?;
        let message = builder_of(&order["message"])
            .enable_transaction()
            .build()
            .map_err(words)?;
        let (decide, decided) = oneshot::channel::<Decision>();
        let (begin, begun) = oneshot::channel::<Result<String, String>>();
        tokio::spawn(async move {
            match producer.send_transaction_message(message).await {
                Err(error) => drop(begin.send(Err(words(error)))),
                Ok(transaction) => {
                    let _ = begin.send(Ok(transaction.message_id().to_string()));
                    if let Ok((how, done)) = decided.await {
                        let ended = match how.as_str() {
                            "commit" => transaction.commit().await,
                            _ => transaction.rollback().await,
                        };
                        let _ = done.send(ended.map_err(words));
                    }
                }
            }
        });
        let message_id = begun
            .await
            .map_err(|_| "panic: no answer to a half".to_string())??;
        let mut table = self.table.lock().unwrap();
        let number = table.halves_made;
        table.halves_made += 1;
        table.halves.insert(
            number,
            Half {
                producer: name,
                decide,
            },
        );
        Ok(json!({"message_id": message_id, "half": number}))
    }

    async fn end(&self, order: &Value) -> Result<Value, String> {
        let number = order["half"].as_u64().unwrap() as usize;
        let half = self.table.lock().unwrap().halves.remove(&number);
        let half = half.ok_or("it has been ended: this library ends a transaction once")?;
        let (done, ended) = oneshot::channel();
        half.decide
            .send((text(order, "how"), done))
            .map_err(|_| "panic: no such half".to_string())?;
        ended
            .await
            .map_err(|_| "panic: no answer to an end".to_string())??;
        Ok(json!({}))
    }

    async fn make_simple(&self, order: &Value) -> Result<Value, String> {
        let (topic, group) = (text(order, "topic"), text(order, "group"));
        let (tags, sql) = (text(order, "tags"), text(order, "sql"));
        let filter = match (sql.as_str(), tags.as_str()) {
            ("", "") => FilterExpression::new(FilterType::Tag, "*"),
            ("", tags) => FilterExpression::new(FilterType::Tag, tags),
            (sql, _) => FilterExpression::new(FilterType::Sql, sql),
        };
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![topic.clone()]);
        option.set_consumer_group(group);
        let mut consumer = SimpleConsumer::new(option, self.options(order)).map_err(words)?;
        consumer.start().await.map_err(words)?;
        Ok(self.keep(
            order,
            Client::Simple(Arc::new(Simple {
                consumer,
                topic,
                filter,
            })),
        ))
    }

    async fn receive(&self, order: &Value) -> Result<Value, String> {
        let simple = self.simple(&text(order, "name"))?;
        let count = order["max"].as_i64().unwrap() as i32;
        let invisible = Duration::from_secs(order["invisible_s"].as_u64().unwrap());
        let receiving =
            simple
                .consumer
                .receive_with(&simple.topic, &simple.filter, count, invisible);
        let mut messages = vec![];
        for view in receiving.await.map_err(words)? {
            let mut table = self.table.lock().unwrap();
            let mut one = shown(&view);
            one["n"] = json!(table.received.len());
            table.received.push(Arc::new(view));
            messages.push(one);
        }
        Ok(json!({"messages": messages}))
    }

    async fn ack(&self, order: &Value) -> Result<Value, String> {
        let simple = self.simple(&text(order, "name"))?;
        let view =
            self.table.lock().unwrap().received[order["n"].as_u64().unwrap() as usize].clone();
        simple.consumer.ack(&*view).await.map_err(words)?;
        Ok(json!({}))
    }

    /// A library's client is closed by whoever has it alone: calls under way have to be over.
    async fn close(&self, order: &Value) -> Result<Value, String> {
        let name = text(order, "name");
        let client = {
            let mut table = self.table.lock().unwrap();
            table.halves.retain(|_, half| half.producer != name);
            table
                .clients
                .remove(&name)
                .ok_or(format!("there is no {name}"))?
        };
        match client {
            Client::Producer(producer) => alone(producer).await?.shutdown().await.map_err(words)?,
            Client::Simple(simple) => alone(simple)
                .await?
                .consumer
                .shutdown()
                .await
                .map_err(words)?,
        }
        Ok(json!({}))
    }

    async fn done(&self, order: &Value) -> Result<Value, String> {
        match order["op"].as_str().unwrap_or("") {
            "producer" => self.make_producer(order).await,
            "send" => self.send(order).await,
            "half" => self.half(order).await,
            "end" => self.end(order).await,
            "simple" => self.make_simple(order).await,
            "receive" => self.receive(order).await,
            "ack" => self.ack(order).await,
            "close" => self.close(order).await,
            other => Err(format!("this library has no {other}")),
        }
    }
}

async fn alone<T>(mut shared: Arc<T>) -> Result<T, String> {
    for _ in 0..CLOSE_TRIES {
        match Arc::try_unwrap(shared) {
            Ok(owned) => return Ok(owned),
            Err(still) => shared = still,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("calls are under way".to_string())
}

async fn serve(app: Arc<App>, order: Value) {
    let id = order["id"].clone();
    // This library panics where others raise: that is what came of the order.
    let ended = tokio::spawn(async move { app.done(&order).await }).await;
    let mut answer = match ended {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => json!({"error": error}),
        Err(panic) => json!({"error": format!("panic: {panic}")}),
    };
    answer["id"] = id;
    say(answer);
}

#[tokio::main]
async fn main() {
    let settings: Value = serde_json::from_str(&std::env::args().nth(1).unwrap()).unwrap();
    let app = Arc::new(App {
        tls: settings["tls"].as_bool().unwrap(),
        table: Mutex::default(),
    });
    say(json!({"ready": true}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        tokio::spawn(serve(app.clone(), serde_json::from_str(&line).unwrap()));
    }
    std::process::exit(0);
}
