// An application with RocketMQ's golang/v5 client that does what it is asked to: the orders of
// python/agent.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type message struct {
	Topic       string            `json:"topic"`
	Body        string            `json:"body"`
	Times       int               `json:"times"`
	Tag         string            `json:"tag"`
	Keys        []string          `json:"keys"`
	Properties  map[string]string `json:"properties"`
	Group       string            `json:"group"`
	DeliverAtMs int64             `json:"deliver_at_ms"`
}

type order struct {
	ID           int                `json:"id"`
	Op           string             `json:"op"`
	Name         string             `json:"name"`
	Endpoints    string             `json:"endpoints"`
	Keys         []string           `json:"keys"`
	Topics       []string           `json:"topics"`
	Topic        string             `json:"topic"`
	Group        string             `json:"group"`
	Tags         string             `json:"tags"`
	SQL          string             `json:"sql"`
	AwaitS       int                `json:"await_s"`
	Check        string             `json:"check"`
	Message      *message           `json:"message"`
	Half         int                `json:"half"`
	How          string             `json:"how"`
	RecallHandle string             `json:"recall_handle"`
	Max          int32              `json:"max"`
	InvisibleS   int                `json:"invisible_s"`
	N            int                `json:"n"`
	Failures     map[string]int     `json:"failures"`
	HoldS        map[string]float64 `json:"hold_s"`
	TimeoutS     int                `json:"timeout_s"`
}

type object = map[string]any

var (
	writing  sync.Mutex
	holding  sync.Mutex
	clients  = map[string]any{}
	received []*rmq.MessageView
	halves   []rmq.Transaction
)

func say(line object) {
	text, _ := json.Marshal(line)
	writing.Lock()
	defer writing.Unlock()
	fmt.Println(string(text))
}

func client(name string) any {
	holding.Lock()
	defer holding.Unlock()
	return clients[name]
}

// Keep a client that is about to start.
func (o *order) keep(made any) {
	if patient, ok := made.(interface{ SetRequestTimeout(time.Duration) }); ok && o.TimeoutS > 0 {
		patient.SetRequestTimeout(time.Duration(o.TimeoutS) * time.Second)
	}
	holding.Lock()
	defer holding.Unlock()
	clients[o.Name] = made
}

func (o *order) config() *rmq.Config {
	keys := &credentials.SessionCredentials{}
	if len(o.Keys) == 2 {
		keys.AccessKey, keys.AccessSecret = o.Keys[0], o.Keys[1]
	}
	return &rmq.Config{Endpoint: o.Endpoints, ConsumerGroup: o.Group, Credentials: keys}
}

func (o *order) filters() map[string]*rmq.FilterExpression {
	if o.SQL != "" {
		return map[string]*rmq.FilterExpression{o.Topic: rmq.NewFilterExpressionWithType(o.SQL, rmq.SQL92)}
	}
	if o.Tags != "" {
		return map[string]*rmq.FilterExpression{o.Topic: rmq.NewFilterExpression(o.Tags)}
	}
	return map[string]*rmq.FilterExpression{o.Topic: rmq.SUB_ALL}
}

func (m *message) made() *rmq.Message {
	made := &rmq.Message{Topic: m.Topic, Body: []byte(strings.Repeat(m.Body, max(m.Times, 1)))}
	if m.Tag != "" {
		made.SetTag(m.Tag)
	}
	if m.Keys != nil {
		made.SetKeys(m.Keys...)
	}
	for key, value := range m.Properties {
		made.AddProperty(key, value)
	}
	if m.Group != "" {
		made.SetMessageGroup(m.Group)
	}
	if m.DeliverAtMs != 0 {
		made.SetDelayTimestamp(time.UnixMilli(m.DeliverAtMs))
	}
	return made
}

func text(given *string) string {
	if given == nil {
		return ""
	}
	return *given
}

func shown(view *rmq.MessageView) object {
	body, keys := view.GetBody(), append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	return object{
		"message_id": view.GetMessageId(), "topic": view.GetTopic(), "body": string(body[:min(len(body), 200)]),
		"size": len(body), "tag": text(view.GetTag()), "keys": keys, "properties": view.GetProperties(),
		"group": text(view.GetMessageGroup()), "attempt": view.GetDeliveryAttempt(),
		"handle": view.GetReceiptHandle(), "at_ms": time.Now().UnixMilli(),
	}
}

func (o *order) producer() (object, error) {
	options := []rmq.ProducerOption{rmq.WithTopics(o.Topics...)}
	if o.Check != "" {
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{
			Check: func(view *rmq.MessageView) rmq.TransactionResolution {
				body := string(view.GetBody())
				say(object{"event": "check", "name": o.Name, "body": body})
				if o.Check == "commit" && !strings.Contains(body, "rollback") {
					return rmq.COMMIT
				}
				return rmq.ROLLBACK
			},
		}))
	}
	made, err := rmq.NewProducer(o.config(), options...)
	if err != nil {
		return nil, err
	}
	o.keep(made)
	return object{}, made.Start()
}

func (o *order) send() (object, error) {
	receipts, err := client(o.Name).(rmq.Producer).Send(context.Background(), o.Message.made())
	if err != nil {
		return nil, err
	}
	return object{"message_id": receipts[0].MessageID, "recall_handle": receipts[0].RecallHandle}, nil
}

func (o *order) half() (object, error) {
	producer := client(o.Name).(rmq.Producer)
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), o.Message.made(), transaction)
	if err != nil {
		return nil, err
	}
	holding.Lock()
	defer holding.Unlock()
	halves = append(halves, transaction)
	return object{"message_id": receipts[0].MessageID, "half": len(halves) - 1}, nil
}

func (o *order) end() (object, error) {
	holding.Lock()
	transaction := halves[o.Half]
	holding.Unlock()
	if o.How == "commit" {
		return object{}, transaction.Commit()
	}
	return object{}, transaction.RollBack()
}

func (o *order) recall() (object, error) {
	id, err := client(o.Name).(rmq.Producer).Recall(context.Background(), o.Topic, o.RecallHandle)
	return object{"message_id": id}, err
}

func (o *order) simple() (object, error) {
	made, err := rmq.NewSimpleConsumer(o.config(), rmq.WithSimpleSubscriptionExpressions(o.filters()),
		rmq.WithSimpleAwaitDuration(time.Duration(max(o.AwaitS, 5))*time.Second),
		rmq.WithSimpleReceiveRateLimit(1200))
	if err != nil {
		return nil, err
	}
	o.keep(made)
	return object{}, made.Start()
}

func (o *order) receive() (object, error) {
	views, err := client(o.Name).(rmq.SimpleConsumer).Receive(context.Background(), o.Max,
		time.Duration(o.InvisibleS)*time.Second)
	if err != nil {
		// What others return as an empty list is an error of this library.
		if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == 40401 {
			return object{"messages": []object{}}, nil
		}
		return nil, err
	}
	holding.Lock()
	defer holding.Unlock()
	messages := []object{}
	for _, view := range views {
		received = append(received, view)
		one := shown(view)
		one["n"] = len(received) - 1
		messages = append(messages, one)
	}
	return object{"messages": messages}, nil
}

func (o *order) view() *rmq.MessageView {
	holding.Lock()
	defer holding.Unlock()
	return received[o.N]
}

func (o *order) ack() (object, error) {
	return object{}, client(o.Name).(rmq.SimpleConsumer).Ack(context.Background(), o.view())
}

func (o *order) change() (object, error) {
	view := o.view()
	err := client(o.Name).(rmq.SimpleConsumer).ChangeInvisibleDuration(view, time.Duration(o.InvisibleS)*time.Second)
	return object{"handle": view.GetReceiptHandle()}, err
}

func (o *order) push() (object, error) {
	var counting sync.Mutex
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		seen := shown(view)
		body := seen["body"].(string)
		counting.Lock()
		left := o.Failures[body]
		if left > 0 {
			o.Failures[body] = left - 1
		}
		counting.Unlock()
		seen["event"], seen["name"], seen["ok"] = "message", o.Name, left == 0
		say(seen)
		time.Sleep(time.Duration(o.HoldS[body] * float64(time.Second)))
		if left > 0 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}
	made, err := rmq.NewPushConsumer(o.config(), rmq.WithPushSubscriptionExpressions(o.filters()),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	if err != nil {
		return nil, err
	}
	o.keep(made)
	return object{}, made.Start()
}

func (o *order) close() (object, error) {
	made := client(o.Name).(interface{ GracefulStop() error })
	return object{}, made.GracefulStop()
}

func (o *order) serve() {
	operations := map[string]func() (object, error){
		"producer": o.producer, "send": o.send, "half": o.half, "end": o.end, "recall": o.recall,
		"simple": o.simple, "receive": o.receive, "ack": o.ack, "change": o.change, "push": o.push,
		"close": o.close,
	}
	result, err := func() (result object, err error) {
		defer func() {
			if said := recover(); said != nil {
				err = fmt.Errorf("panic: %v", said)
			}
		}()
		return operations[o.Op]()
	}()
	if err != nil {
		result = object{"error": err.Error()}
	}
	result["id"] = o.ID
	say(result)
}

func main() {
	var settings struct {
		TLS bool `json:"tls"`
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &settings); err != nil {
		panic(err)
	}
	// By default it speaks TLS alone; who wants something else says so.
	if !settings.TLS {
		rmq.EnableSsl = false
	}
	say(object{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		one := &order{}
		if err := json.Unmarshal(lines.Bytes(), one); err != nil {
			panic(err)
		}
		go one.serve()
	}
	os.Exit(0)
}
