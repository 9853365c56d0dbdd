// Package kfake takes the place of franz-go's broker in memory: a cluster is a gateway of ours.
//
// Each cluster asks the address in STREAMLOG_GATEWAYS for a gateway on a root of its own, which lives
// as long as that connection. Clients reach it through a relay, so that a test can answer requests in
// the place of the server.
package kfake

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	startTimeout = 60 * time.Second
	maxFrame     = 100 << 20
)

// Opt is an option of a cluster.
type Opt func(*Cluster)

// Control answers a request in the place of the server if its last result is true.
type Control = func(kmsg.Request) (kmsg.Response, error, bool)

// Cluster is one gateway.
type Cluster struct {
	properties map[string]string
	topics     []kmsg.CreateTopicsRequestTopic
	lease      net.Conn // the gateway stops when it is closed
	server     string
	relay      net.Listener

	mu       sync.Mutex
	controls map[int16][]Control
}

// NumBrokers does nothing: a gateway is one broker.
func NumBrokers(int) Opt { return func(*Cluster) {} }

// BrokerConfigs adds settings.
func BrokerConfigs(properties map[string]string) Opt {
	return func(c *Cluster) {
		for name, value := range properties {
			c.properties[name] = value
		}
	}
}

// SeedTopics creates topics.
func SeedTopics(partitions int32, names ...string) Opt {
	return func(c *Cluster) {
		for _, name := range names {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
			c.topics = append(c.topics, topic)
		}
	}
}

// NewCluster starts a gateway.
func NewCluster(opts ...Opt) (*Cluster, error) {
	c := &Cluster{
		properties: map[string]string{
			"auto.create.topics.enable": "false",
			// The scenarios want shorter times than Kafka allows by default.
			"group.consumer.min.heartbeat.interval.ms": "100",
			"group.consumer.min.session.timeout.ms":    "500",
		},
		controls: make(map[int16][]Control),
	}
	for _, opt := range opts {
		opt(c)
	}
	var err error
	if c.relay, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if err = c.start(); err == nil {
		go c.accept()
		err = c.createTopics()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// ListenAddrs returns the address for clients.
func (c *Cluster) ListenAddrs() []string { return []string{c.relay.Addr().String()} }

// Close stops the gateway.
func (c *Cluster) Close() {
	c.relay.Close()
	if c.lease != nil {
		c.lease.Close()
	}
}

// ControlKey adds a control for requests of a key; it goes once it has answered one.
func (c *Cluster) ControlKey(key int16, control Control) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controls[key] = append(c.controls[key], control)
}

func (c *Cluster) start() error {
	var err error
	if c.lease, err = net.Dial("tcp", os.Getenv("STREAMLOG_GATEWAYS")); err != nil {
		return err
	}
	c.lease.SetDeadline(time.Now().Add(startTimeout))
	defer c.lease.SetDeadline(time.Time{})
	wanted := map[string]any{"advertise": c.relay.Addr().String(), "properties": c.properties}
	if err = json.NewEncoder(c.lease).Encode(wanted); err != nil {
		return err
	}
	line, err := bufio.NewReader(c.lease).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the gateway does not start: %w", err)
	}
	c.server = strings.TrimSpace(line)
	return nil
}

func (c *Cluster) createTopics() error {
	if len(c.topics) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = c.topics
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, topic := range response.Topics {
		if topic.ErrorCode != 0 {
			return fmt.Errorf("topic %s cannot be created: error %d", topic.Topic, topic.ErrorCode)
		}
	}
	return nil
}

func (c *Cluster) accept() {
	for {
		client, err := c.relay.Accept()
		if err != nil {
			return // closed
		}
		go c.relayClient(client)
	}
}

// relayClient passes frames on in order: each pending entry is an answer of a control, or nil for the
// server's next one.
func (c *Cluster) relayClient(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		return
	}
	defer server.Close()
	pending := make(chan []byte, 1024)
	defer close(pending)
	go func() {
		defer client.Close()
		defer server.Close()
		for answer := range pending {
			if answer == nil {
				if answer, err = readFrame(server); err != nil {
					return
				}
			}
			if writeFrame(client, answer) != nil {
				return
			}
		}
	}()
	for {
		frame, err := readFrame(client)
		if err != nil {
			return
		}
		request, correlation, err := parse(frame)
		if err != nil {
			return
		}
		answer := c.control(request, correlation)
		if answer == nil {
			if writeFrame(server, frame) != nil {
				return
			}
			if produce, ok := request.(*kmsg.ProduceRequest); ok && produce.Acks == 0 {
				continue // is not answered
			}
		}
		pending <- answer
	}
}

// control returns the answer of the first control that handles a request, or nil.
func (c *Cluster) control(request kmsg.Request, correlation []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, control := range c.controls[request.Key()] {
		response, _, handled := control(request)
		if !handled {
			continue
		}
		c.controls[request.Key()] = slices.Delete(c.controls[request.Key()], i, i+1)
		response.SetVersion(request.GetVersion())
		answer := slices.Clone(correlation)
		if response.IsFlexible() {
			answer = append(answer, 0) // no tagged fields
		}
		return response.AppendTo(answer)
	}
	return nil
}

// parse decodes the requests that matter here, and the headers of all others.
func parse(frame []byte) (kmsg.Request, []byte, error) {
	if len(frame) < 10 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	request := kmsg.RequestForKey(key)
	if request == nil {
		return nil, nil, fmt.Errorf("unknown key %d", key)
	}
	request.SetVersion(version)
	correlation, body := frame[4:8], frame[10:]
	if name := int16(binary.BigEndian.Uint16(frame[8:])); name > 0 {
		body = body[min(int(name), len(body)):]
	}
	if key != int16(kmsg.Produce) && key != int16(kmsg.ConsumerGroupHeartbeat) {
		return request, correlation, nil
	}
	if request.IsFlexible() && len(body) > 0 {
		body = body[1:] // no tagged fields
	}
	return request, correlation, request.ReadFrom(body)
}

func readFrame(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(from, frame)
	return frame, err
}

func writeFrame(to io.Writer, frame []byte) error {
	data := binary.BigEndian.AppendUint32(nil, uint32(len(frame)))
	_, err := to.Write(append(data, frame...))
	return err
}
