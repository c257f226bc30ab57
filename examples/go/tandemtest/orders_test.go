package tandemtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	ordersCount = 60
	patience    = 150 * time.Second
)

func TestEveryOrderIsConsumedAlthoughTheMasterIsKilled(t *testing.T) {
	rlog.SetLogLevel("fatal")
	cluster := Start(t, "--topic", "Orders")
	shop, err := rocketmq.NewProducer(
		producer.WithNameServer(cluster.NameServers()), producer.WithGroupName("shop"),
	)
	if err == nil {
		err = shop.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	killed := ""
	for number := 0; number < ordersCount; number++ {
		if number == ordersCount/3 {
			killed = cluster.KillMaster()
		}
		sendUntilItIsSafe(t, shop, fmt.Sprintf("order %d", number))
	}
	shop.Shutdown()
	if master := cluster.WaitForMaster(killed); master == killed {
		t.Fatalf("%s is master, and was killed", master)
	}
	if seen := consumed(t, cluster, ordersCount); len(seen) != ordersCount {
		t.Fatalf("%d of %d orders were consumed", len(seen), ordersCount)
	}
}

func TestAnOrderThatMakesNoSenseIsRefusedAndTheClusterLivesOn(t *testing.T) {
	cluster := Start(t, "--classic", "--nodes", "1")
	err := cluster.Order("kill", map[string]string{"node": "broker-a-7"}, nil)
	var refused *OrderError
	if !errors.As(err, &refused) || refused.Code != "unknown_node" {
		t.Fatal(err)
	}
	if master := cluster.Master(); master != "broker-a-0" {
		t.Fatal(master)
	}
}

func sendUntilItIsSafe(t *testing.T, shop rocketmq.Producer, order string) {
	deadline := time.Now().Add(patience)
	for {
		message := primitive.NewMessage("Orders", []byte(order))
		result, err := shop.SendSync(context.Background(), message)
		if err == nil && result.Status == primitive.SendOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", order, err)
		}
		time.Sleep(50 * time.Millisecond) // another master is being elected
	}
}

func consumed(t *testing.T, cluster *Cluster, count int) map[string]bool {
	var mutex sync.Mutex
	seen := map[string]bool{}
	all := make(chan struct{}, 1)
	billing, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(cluster.NameServers()), consumer.WithGroupName("billing"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err == nil {
		err = billing.Subscribe("Orders", consumer.MessageSelector{},
			func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				mutex.Lock()
				defer mutex.Unlock()
				for _, message := range messages {
					seen[string(message.Body)] = true
				}
				if len(seen) == count {
					select {
					case all <- struct{}{}:
					default: // said already
					}
				}
				return consumer.ConsumeSuccess, nil
			})
	}
	if err == nil {
		err = billing.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer billing.Shutdown()
	select {
	case <-all:
	case <-time.After(patience):
	}
	mutex.Lock()
	defer mutex.Unlock()
	return seen
}
