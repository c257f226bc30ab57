// Package tandemtest starts TandemMQ clusters for tests: Linux, and `pip install tandem-mq`.
//
//	cluster := tandemtest.Start(t, "--topic", "Orders")
//	producer.WithNameServer(cluster.NameServers())
//	cluster.KillMaster()
//
// Copy this file to your module; it needs the standard library alone. A cluster is a process of
// `tandem testing serve`, which ends with the test, and with this process, however that ends. The
// program is `tandem`, or what TANDEM_COMMAND names. The methods end the test with t.Fatal if they
// cannot do what they are for.
package tandemtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const endSecondsMax = 60 * time.Second

// Cluster is a cluster that is up. In goroutines other than the test's own use Order alone: the
// other methods call t.Fatal.
type Cluster struct {
	t       testing.TB
	mutex   sync.Mutex
	orders  io.WriteCloser
	answers *bufio.Reader
	ready   readyLine
}

type readyLine struct {
	NameServers string `json:"name_servers"`
	Master      string `json:"master"`
	ClusterFile string `json:"cluster_file"`
	Nodes       []Node `json:"nodes"`
}

// Node is one of the cluster, with its address for clients.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	LogFile string `json:"log_file"`
}

// OrderError says why an order was not carried out. Code is one of a fixed list.
type OrderError struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

func (e *OrderError) Error() string { return e.Code + ": " + e.Text }

type answer struct {
	Ready  *readyLine      `json:"ready"`
	Result json.RawMessage `json:"result"`
	Error  *OrderError     `json:"error"`
}

// Start has a cluster up until the end of the test. Options are those of `tandem testing serve`;
// without any it is a fenced group of three nodes, which elect another master when one is lost.
func Start(t testing.TB, options ...string) *Cluster {
	t.Helper()
	named := os.Getenv("TANDEM_COMMAND")
	if named == "" {
		named = "tandem"
	}
	words := append(strings.Fields(named), "testing", "serve")
	words = append(words, options...)
	command := exec.Command(words[0], words[1:]...)
	command.Stderr = os.Stderr
	orders, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	cluster := &Cluster{t: t, orders: orders, answers: bufio.NewReader(answers)}
	t.Cleanup(func() {
		orders.Close()
		last := time.AfterFunc(endSecondsMax, func() { command.Process.Kill() })
		defer last.Stop()
		command.Wait()
	})
	first, err := cluster.answered()
	if err != nil {
		t.Fatalf("the cluster did not start: %v", err)
	}
	cluster.ready = *first.Ready
	return cluster
}

// NameServers returns what clients take: every node's host:port.
func (c *Cluster) NameServers() []string { return strings.Split(c.ready.NameServers, ";") }

// Nodes returns the nodes.
func (c *Cluster) Nodes() []Node { return c.ready.Nodes }

// ClusterFile returns what `--config` of the command line takes.
func (c *Cluster) ClusterFile() string { return c.ready.ClusterFile }

// NewTopic creates a topic that no other test has, and returns its name.
func (c *Cluster) NewTopic() string {
	c.t.Helper()
	var result struct{ Topic string }
	c.must("topic", nil, &result)
	return result.Topic
}

// KillMaster ends the master with SIGKILL, and returns its name.
func (c *Cluster) KillMaster() string { c.t.Helper(); return c.node("kill_master", nil) }

// Master returns the node that is master now; empty if there is none.
func (c *Cluster) Master() string { c.t.Helper(); return c.node("master", nil) }

// WaitForMaster waits until there is a master other than that node, and returns its name.
func (c *Cluster) WaitForMaster(otherThan string) string {
	c.t.Helper()
	return c.node("wait_for_master", map[string]any{"other_than": otherThan})
}

// Kill ends a node with SIGKILL.
func (c *Cluster) Kill(node string) { c.t.Helper(); c.ofNode("kill", node) }

// Start starts a node that is down; it serves when this returns.
func (c *Cluster) Start(node string) { c.t.Helper(); c.ofNode("start", node) }

// Restart stops a node in an orderly way and starts it.
func (c *Cluster) Restart(node string) { c.t.Helper(); c.ofNode("restart", node) }

// Freeze is SIGSTOP: the node's connections stay open and silent.
func (c *Cluster) Freeze(node string) { c.t.Helper(); c.ofNode("freeze", node) }

// Thaw lets a frozen node go on.
func (c *Cluster) Thaw(node string) { c.t.Helper(); c.ofNode("thaw", node) }

// Partition cuts nodes off from all other nodes. Clients still reach them.
func (c *Cluster) Partition(nodes ...string) {
	c.t.Helper()
	c.must("partition", map[string]any{"nodes": nodes}, nil)
}

// Recover ends every fault, starts what is down, and waits until all nodes are in sync.
func (c *Cluster) Recover() { c.t.Helper(); c.must("recover", nil, nil) }

// Order gives any order and decodes its result, if that is not nil. The error is an *OrderError if
// the cluster is there and did not carry it out.
func (c *Cluster) Order(name string, arguments, result any) error {
	if arguments == nil {
		arguments = struct{}{}
	}
	line, err := json.Marshal(map[string]any{name: arguments})
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, err := c.orders.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the cluster is gone: %w", err)
	}
	answer, err := c.answered()
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(answer.Result, result)
}

func (c *Cluster) answered() (*answer, error) {
	line, err := c.answers.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the cluster has ended: %w", err)
	}
	var found answer
	if err := json.Unmarshal(line, &found); err != nil {
		return nil, err
	}
	if found.Error != nil {
		return nil, found.Error
	}
	return &found, nil
}

func (c *Cluster) must(name string, arguments, result any) {
	c.t.Helper()
	if err := c.Order(name, arguments, result); err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
}

func (c *Cluster) node(name string, arguments any) string {
	c.t.Helper()
	var result struct{ Node string }
	c.must(name, arguments, &result)
	return result.Node
}

func (c *Cluster) ofNode(name, node string) {
	c.t.Helper()
	c.must(name, map[string]any{"node": node}, nil)
}
