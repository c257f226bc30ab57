// Scenarios for rocketmq-client-go v2, several at a time in one process.
//
// Arguments: name servers with ';' between, prefix of topics that exist (numbered from 0), file for the
// results, part of the names to run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const secondsMax = 100

type scenario struct {
	name    string
	topic   string
	group   string
	run     func(*scenario) error
	closing []func()
}

type line struct {
	Name    string  `json:"name"`
	Ok      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason"`
}

var (
	servers []string
	prefix  string
)

func main() {
	rlog.SetLogLevel("fatal")
	servers, prefix = strings.Split(os.Args[1], ";"), os.Args[2]
	file, err := os.Create(os.Args[3])
	if err != nil {
		panic(err)
	}
	var writing sync.Mutex
	var all sync.WaitGroup
	for number, one := range scenarios() {
		if !strings.Contains(one.name, os.Args[4]) {
			continue
		}
		one := one
		one.topic = fmt.Sprintf("%s_%d", prefix, number)
		one.group = fmt.Sprintf("G_%s_%d", prefix, number)
		all.Add(1)
		go func() {
			defer all.Done()
			begun := time.Now()
			err := limited(one)
			said := line{Name: one.name, Ok: err == nil, Seconds: time.Since(begun).Seconds()}
			if err != nil {
				said.Reason = err.Error()
			}
			text, _ := json.Marshal(said)
			writing.Lock()
			defer writing.Unlock()
			_, _ = file.Write(append(text, '\n'))
		}()
	}
	all.Wait()
	_ = file.Close()
	os.Exit(0)
}

func limited(one *scenario) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if told := recover(); told != nil {
				done <- fmt.Errorf("panic: %v", told)
			}
		}()
		done <- one.run(one)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(secondsMax * time.Second):
		return fmt.Errorf("not done in %d s", secondsMax)
	}
}

func (s *scenario) producer(options ...producer.Option) (rocketmq.Producer, error) {
	options = append([]producer.Option{
		producer.WithNameServer(servers), producer.WithGroupName("P" + s.group),
		producer.WithInstanceName("p" + s.group), producer.WithRetry(2),
	}, options...)
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

// What a consumer has seen so far.
type seen struct {
	sync.Mutex
	messages []*primitive.MessageExt
}

func (s *seen) add(messages []*primitive.MessageExt) {
	s.Lock()
	defer s.Unlock()
	s.messages = append(s.messages, messages...)
}

func (s *seen) bodies() []string {
	s.Lock()
	defer s.Unlock()
	found := map[string]bool{}
	for _, message := range s.messages {
		found[string(message.Body)] = true
	}
	bodies := []string{}
	for body := range found {
		bodies = append(bodies, body)
	}
	sort.Strings(bodies)
	return bodies
}

func (s *seen) await(bodies ...string) error {
	sort.Strings(bodies)
	err := until(60, func() bool { return len(s.bodies()) >= len(bodies) }, func() string {
		return fmt.Sprintf("seen %v", s.bodies())
	})
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // for what should not come
	return equal(fmt.Sprint(bodies), fmt.Sprint(s.bodies()), "bodies")
}

func (s *scenario) push(group string, options ...consumer.Option) (rocketmq.PushConsumer, error) {
	options = append([]consumer.Option{
		consumer.WithNameServer(servers), consumer.WithGroupName(group),
		consumer.WithInstance(fmt.Sprintf("c%d", time.Now().UnixNano())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
	return rocketmq.NewPushConsumer(options...)
}

func (s *scenario) taking(group, topic string, selector consumer.MessageSelector, options ...consumer.Option) (*seen, rocketmq.PushConsumer, error) {
	made, err := s.push(group, options...)
	if err != nil {
		return nil, nil, err
	}
	found := &seen{}
	err = made.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		found.add(messages)
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return found, made, made.Start()
}

func until(seconds float64, holds func() bool, otherwise func() string) error {
	deadline := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for !holds() {
		if time.Now().After(deadline) {
			return fmt.Errorf("after %g s: %s", seconds, otherwise())
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func equal(expected, actual any, what string) error {
	if expected != actual {
		return fmt.Errorf("%s: %v, expected %v", what, actual, expected)
	}
	return nil
}

func numbered(count int) []string {
	bodies := []string{}
	for number := 0; number < count; number++ {
		bodies = append(bodies, fmt.Sprintf("body%d", number))
	}
	return bodies
}

func sent(made rocketmq.Producer, topic string, count int) error {
	for _, body := range numbered(count) {
		result, err := made.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)).WithTag("A"))
		if err != nil {
			return err
		}
		if err := equal(primitive.SendOK, result.Status, "status"); err != nil {
			return err
		}
	}
	return nil
}

type listener struct {
	first, later primitive.LocalTransactionState
}

func (l listener) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return l.first
}

func (l listener) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return l.later
}

func transaction(first, later primitive.LocalTransactionState, expected []string, quiet time.Duration) func(*scenario) error {
	return func(s *scenario) error {
		found, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{})
		if err != nil {
			return err
		}
		made, err := rocketmq.NewTransactionProducer(listener{first, later}, producer.WithNameServer(servers),
			producer.WithGroupName("P"+s.group), producer.WithInstanceName("t"+s.group))
		if err != nil {
			return err
		}
		if err = made.Start(); err != nil {
			return err
		}
		_, err = made.SendMessageInTransaction(context.Background(), primitive.NewMessage(s.topic, []byte("half")))
		if err != nil {
			return err
		}
		plain, err := s.producer()
		if err != nil {
			return err
		}
		if _, err = plain.SendSync(context.Background(), primitive.NewMessage(s.topic, []byte("other"))); err != nil {
			return err
		}
		if err = found.await(expected...); err != nil {
			return err
		}
		time.Sleep(quiet)
		return equal(fmt.Sprint(expected), fmt.Sprint(found.bodies()), "bodies")
	}
}

func scenarios() []*scenario {
	list := []*scenario{}
	add := func(name string, run func(*scenario) error) {
		list = append(list, &scenario{name: name, run: run})
	}
	consumed := func(send func(*scenario, rocketmq.Producer) error, bodies ...string) func(*scenario) error {
		return func(s *scenario) error {
			made, err := s.producer()
			if err != nil {
				return err
			}
			if err = send(s, made); err != nil {
				return err
			}
			found, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{})
			if err != nil {
				return err
			}
			return found.await(bodies...)
		}
	}
	add("send sync, push concurrently", consumed(func(s *scenario, made rocketmq.Producer) error {
		return sent(made, s.topic, 10)
	}, numbered(10)...))
	add("send async", consumed(func(s *scenario, made rocketmq.Producer) error {
		answers := make(chan error, 5)
		for _, body := range numbered(5) {
			err := made.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
				answers <- err
			}, primitive.NewMessage(s.topic, []byte(body)))
			if err != nil {
				return err
			}
		}
		for range numbered(5) {
			if err := <-answers; err != nil {
				return err
			}
		}
		return nil
	}, numbered(5)...))
	add("send one-way", consumed(func(s *scenario, made rocketmq.Producer) error {
		for _, body := range numbered(5) {
			if err := made.SendOneWay(context.Background(), primitive.NewMessage(s.topic, []byte(body))); err != nil {
				return err
			}
		}
		return nil
	}, numbered(5)...))
	add("send batch", consumed(func(s *scenario, made rocketmq.Producer) error {
		messages := []*primitive.Message{}
		for _, body := range numbered(5) {
			messages = append(messages, primitive.NewMessage(s.topic, []byte(body)))
		}
		_, err := made.SendSync(context.Background(), messages...)
		return err
	}, numbered(5)...))
	add("compressed body", func(s *scenario) error {
		body := strings.Repeat("compressible ", 10_000)
		return consumed(func(s *scenario, made rocketmq.Producer) error {
			_, err := made.SendSync(context.Background(), primitive.NewMessage(s.topic, []byte(body)))
			return err
		}, body)(s)
	})
	add("topic is made by the first message", func(s *scenario) error {
		made, err := s.producer()
		if err != nil {
			return err
		}
		return sent(made, "GoAuto_"+prefix, 3)
	})
	add("delay level", func(s *scenario) error {
		made, err := s.producer()
		if err != nil {
			return err
		}
		found, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{})
		if err != nil {
			return err
		}
		begun := time.Now()
		_, err = made.SendSync(context.Background(), primitive.NewMessage(s.topic, []byte("late")).WithDelayTimeLevel(2))
		if err != nil {
			return err
		}
		if err = found.await("late"); err != nil {
			return err
		}
		if took := time.Since(begun).Seconds(); took < 4.5 || took > 12 {
			return fmt.Errorf("came after %g s", took)
		}
		return nil
	})
	add("push with tags", func(s *scenario) error {
		made, err := s.producer()
		if err != nil {
			return err
		}
		for _, tag := range []string{"A", "B", "C"} {
			if _, err = made.SendSync(context.Background(), primitive.NewMessage(s.topic, []byte(tag)).WithTag(tag)); err != nil {
				return err
			}
		}
		found, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "A || C"})
		if err != nil {
			return err
		}
		return found.await("A", "C")
	})
	add("push with SQL92", func(s *scenario) error {
		made, err := s.producer()
		if err != nil {
			return err
		}
		for number, body := range numbered(5) {
			message := primitive.NewMessage(s.topic, []byte(body))
			message.WithProperty("a", fmt.Sprint(number))
			if _, err = made.SendSync(context.Background(), message); err != nil {
				return err
			}
		}
		found, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{Type: consumer.SQL92, Expression: "a > 2"})
		if err != nil {
			return err
		}
		return found.await("body3", "body4")
	})
	add("push in order", func(s *scenario) error {
		made, err := s.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
		if err != nil {
			return err
		}
		for number := 0; number < 20; number++ {
			message := primitive.NewMessage(s.topic, []byte(fmt.Sprintf("%02d", number))).WithShardingKey(fmt.Sprint(number % 3))
			if _, err = made.SendSync(context.Background(), message); err != nil {
				return err
			}
		}
		found, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{}, consumer.WithConsumerOrder(true))
		if err != nil {
			return err
		}
		if err = until(60, func() bool { return len(found.bodies()) >= 20 }, func() string { return fmt.Sprint(found.bodies()) }); err != nil {
			return err
		}
		last := map[string][]byte{}
		for _, message := range found.messages {
			if bytes.Compare(last[message.GetShardingKey()], message.Body) > 0 {
				return fmt.Errorf("%s came after %s", message.Body, last[message.GetShardingKey()])
			}
			last[message.GetShardingKey()] = message.Body
		}
		return nil
	})
	add("retry, then success", func(s *scenario) error {
		made, err := s.producer()
		if err != nil {
			return err
		}
		if err = sent(made, s.topic, 1); err != nil {
			return err
		}
		pushed, err := s.push(s.group)
		if err != nil {
			return err
		}
		found := &seen{}
		err = pushed.Subscribe(s.topic, consumer.MessageSelector{}, func(inner context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			found.add(messages)
			if told, ok := primitive.GetConcurrentlyCtx(inner); ok {
				told.DelayLevelWhenNextConsume = 1
			}
			if messages[0].ReconsumeTimes < 1 {
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		})
		if err != nil {
			return err
		}
		if err = pushed.Start(); err != nil {
			return err
		}
		return until(80, func() bool {
			found.Lock()
			defer found.Unlock()
			return len(found.messages) >= 2 && found.messages[1].ReconsumeTimes == 1
		}, func() string { return fmt.Sprintf("%d deliveries", len(found.messages)) })
	})
	add("two consumers share the queues", func(s *scenario) error {
		one, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{})
		if err != nil {
			return err
		}
		two, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{})
		if err != nil {
			return err
		}
		made, err := s.producer()
		if err != nil {
			return err
		}
		time.Sleep(25 * time.Second) // one round of rebalancing
		if err = sent(made, s.topic, 20); err != nil {
			return err
		}
		return until(40, func() bool {
			return len(one.bodies()) > 0 && len(two.bodies()) > 0 && len(one.bodies())+len(two.bodies()) >= 20
		}, func() string { return fmt.Sprintf("%v and %v", one.bodies(), two.bodies()) })
	})
	add("consumer goes on where its group was", func(s *scenario) error {
		made, err := s.producer()
		if err != nil {
			return err
		}
		if err = sent(made, s.topic, 4); err != nil {
			return err
		}
		found, pushed, err := s.taking(s.group, s.topic, consumer.MessageSelector{})
		if err != nil {
			return err
		}
		if err = found.await(numbered(4)...); err != nil {
			return err
		}
		if err = pushed.Shutdown(); err != nil {
			return err
		}
		if _, err = made.SendSync(context.Background(), primitive.NewMessage(s.topic, []byte("later"))); err != nil {
			return err
		}
		again, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{})
		if err != nil {
			return err
		}
		return again.await("later")
	})
	add("broadcast", func(s *scenario) error {
		one, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{}, consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return err
		}
		two, _, err := s.taking(s.group, s.topic, consumer.MessageSelector{}, consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return err
		}
		made, err := s.producer()
		if err != nil {
			return err
		}
		time.Sleep(3 * time.Second)
		if err = sent(made, s.topic, 4); err != nil {
			return err
		}
		if err = one.await(numbered(4)...); err != nil {
			return err
		}
		return two.await(numbered(4)...)
	})
	add("transaction committed", transaction(primitive.CommitMessageState, primitive.CommitMessageState, []string{"half", "other"}, 0))
	add("transaction rolled back", transaction(primitive.RollbackMessageState, primitive.RollbackMessageState, []string{"other"}, 8*time.Second))
	add("transaction checked and committed", transaction(primitive.UnknowState, primitive.CommitMessageState, []string{"half", "other"}, 0))
	add("request and reply", func(s *scenario) error {
		made, err := s.producer()
		if err != nil {
			return err
		}
		if err = sent(made, s.topic, 1); err != nil { // so that the broker knows this client
			return err
		}
		pushed, err := s.push(s.group)
		if err != nil {
			return err
		}
		err = pushed.Subscribe(s.topic, consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if string(messages[0].Body) != "question" {
				return consumer.ConsumeSuccess, nil
			}
			time.Sleep(time.Second)
			reply, err := consumer.CreateReplyMessage(messages[0], []byte("answer"))
			if err == nil {
				_, err = made.SendSync(context.Background(), reply)
			}
			return consumer.ConsumeSuccess, err
		})
		if err != nil {
			return err
		}
		if err = pushed.Start(); err != nil {
			return err
		}
		time.Sleep(5 * time.Second)
		reply, err := made.Request(context.Background(), 20*time.Second, primitive.NewMessage(s.topic, []byte("question")))
		if err != nil {
			return err
		}
		return equal("answer", string(reply.Body), "reply")
	})
	add("admin: all topics", func(s *scenario) error {
		made, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(servers)))
		if err != nil {
			return err
		}
		all, err := made.FetchAllTopicList(context.Background())
		if err != nil {
			return err
		}
		for _, topic := range all.TopicList {
			if topic == s.topic {
				return nil
			}
		}
		return fmt.Errorf("%s is not among %d", s.topic, len(all.TopicList))
	})
	add("admin: message queues of a topic", func(s *scenario) error {
		made, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(servers)))
		if err != nil {
			return err
		}
		queues, err := made.FetchPublishMessageQueues(context.Background(), s.topic)
		if err != nil {
			return err
		}
		return equal(4, len(queues), "queues")
	})
	return list
}
