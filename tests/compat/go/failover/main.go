// A producer that sends one message after the other, 10 ms apart, until it is killed.
//
// Arguments: name servers with ";" between, topic. Prints a line per send: when it ended, in
// milliseconds of the wall clock, and how. Its poll interval cannot be set: 30 s is a constant.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("fatal")
	p, err := producer.NewDefaultProducer(
		producer.WithNameServer(strings.Split(os.Args[1], ";")),
		producer.WithGroupName("failover-go"),
	)
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		result, err := p.SendSync(context.Background(), primitive.NewMessage(os.Args[2], []byte("failover")))
		said := "SEND_OK"
		if err != nil {
			said = strings.ReplaceAll(err.Error(), "\n", " ")
		} else if result.Status != primitive.SendOK {
			said = fmt.Sprintf("status %d", result.Status)
		}
		fmt.Println(time.Now().UnixMilli(), said)
		time.Sleep(10 * time.Millisecond)
	}
}
