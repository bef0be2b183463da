package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const sharedMessages = 1000

func (r *run) shared() {
	topic := r.topic("shared")
	check("two consumers share a subscription", sharedMessages, func() error {
		var lock sync.Mutex
		parts := [2]int{}
		together := map[int]bool{}
		for index := range parts {
			consumer, err := r.client.Subscribe(pulsar.ConsumerOptions{
				Topic: topic, SubscriptionName: "s", Type: pulsar.Shared, ReceiverQueueSize: 50,
			})
			if err != nil {
				return err
			}
			defer consumer.Close()
			go func() {
				for message := range consumer.Chan() {
					lock.Lock()
					parts[index]++
					together[number(message.Payload())] = true
					lock.Unlock()
					_ = consumer.Ack(message.Message)
				}
			}()
		}
		producer, err := r.producer(topic, false, pulsar.NoCompression)
		if err != nil {
			return err
		}
		defer producer.Close()
		if _, err := sendAll(producer, 0, sharedMessages); err != nil {
			return err
		}
		await(func() bool {
			lock.Lock()
			defer lock.Unlock()
			return parts[0]+parts[1] >= sharedMessages
		})
		time.Sleep(200 * time.Millisecond)
		lock.Lock()
		defer lock.Unlock()
		if parts[0]+parts[1] != sharedMessages || len(together) != sharedMessages {
			return fmt.Errorf("%v messages arrived, %d different ones", parts, len(together))
		}
		if parts[0] == 0 || parts[1] == 0 {
			return fmt.Errorf("%v: one consumer got nothing", parts)
		}
		return nil
	})
}

func (r *run) exclusive() {
	topic := r.topic("exclusive")
	check("a second exclusive consumer is refused", 10, func() error {
		holder, err := r.subscribe(topic)
		if err != nil {
			return err
		}
		other := &run{client: connect(r.url), url: r.url, prefix: r.prefix}
		defer other.client.Close()
		if second, err := other.subscribe(topic); err == nil {
			second.Close()
			return fmt.Errorf("the second consumer was accepted")
		} else if !strings.Contains(err.Error(), "ConsumerBusy") {
			return err
		}
		holder.Close()
		return other.ends(topic, false, pulsar.NoCompression, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
			_, err := sendAll(producer, 0, 10)
			return first(err, receiveFrom(consumer, 0, 10))
		})
	})
}

func (r *run) restart() {
	check("nothing is lost over a restart", 0, func() error {
		return r.ends(r.topic("restart"), false, pulsar.NoCompression, overRestart)
	})
}

func overRestart(consumer pulsar.Consumer, producer pulsar.Producer) error {
	var lock sync.Mutex
	var order []int
	seen := map[int]bool{}
	go func() {
		for message := range consumer.Chan() {
			lock.Lock()
			if index := number(message.Payload()); !seen[index] {
				seen[index] = true
				order = append(order, index)
			}
			lock.Unlock()
			_ = consumer.Ack(message.Message)
		}
	}()
	sent := 0
	failures := make(chan error, 100000)
	var left sync.WaitGroup
	send := func(until func() bool) {
		for !until() {
			left.Add(1)
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: payload(sent)},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					if err != nil {
						failures <- err
					}
					left.Done()
				})
			sent++
			time.Sleep(time.Millisecond)
		}
	}
	send(func() bool { return sent >= 300 })
	say(map[string]any{"event": "restart"})
	back := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(back)
	}()
	send(func() bool {
		select {
		case <-back:
			return true
		default:
			return false
		}
	})
	behind := sent + 300
	send(func() bool { return sent >= behind })
	err := producer.Flush()
	left.Wait()
	close(failures)
	if err := first(err, <-failures); err != nil {
		return err
	}
	await(func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(order) >= sent
	})
	lock.Lock()
	defer lock.Unlock()
	if len(order) != sent {
		return fmt.Errorf("%d messages received, %d sent", len(order), sent)
	}
	for expected, index := range order {
		if index != expected {
			return fmt.Errorf("message %d first seen in place of %d", index, expected)
		}
	}
	return nil
}

func await(condition func() bool) {
	for end := time.Now().Add(2 * timeout); !condition() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}
