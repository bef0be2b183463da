package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Transactions, for a recording of what the client says. Before each step the program prints "step" and its name, and waits for a
// line.
func transactions(url string, prefix string) {
	input := bufio.NewReader(os.Stdin)
	step := func(name string) {
		fmt.Println("step " + name)
		if _, err := input.ReadString('\n'); err != nil {
			log.Fatal(err)
		}
	}
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	tell := func(what string, err error) { fmt.Printf(" %s: %v\n", what, err) }
	step("connect")
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, OperationTimeout: timeout, EnableTransaction: true})
	must(err)
	topic := "persistent://public/default/" + prefix
	step("producer and consumer")
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Name: "p", DisableBatching: true, SendTimeout: -1})
	must(err)
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	send := func(text string, txn pulsar.Transaction) {
		_, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(text), Transaction: txn})
		must(err)
	}
	receive := func() pulsar.Message {
		message, err := consumer.Receive(ctx)
		must(err)
		fmt.Printf(" received %s\n", message.Payload())
		return message
	}
	send("plain 0", nil)
	send("plain 1", nil)
	first, second := receive(), receive()

	step("commit")
	committed, err := client.NewTransaction(time.Minute)
	must(err)
	send("committed 0", committed)
	must(consumer.AckWithTxn(first, committed))
	must(committed.Commit(ctx))
	must(consumer.Ack(receive()))

	step("abort")
	aborted, err := client.NewTransaction(time.Minute)
	must(err)
	send("aborted 0", aborted)
	must(consumer.AckWithTxn(second, aborted))
	must(aborted.Abort(ctx))
	send("after the abort", nil)
	// The message whose acknowledgement is undone comes again. With Apache Pulsar the aborted one comes, too: this client
	// writes the transaction's id into the command only, and the broker filters by the message's metadata.
	again, after := false, false
	for !again || !after {
		next := receive()
		switch string(next.Payload()) {
		case "plain 1":
			again = true
			continue
		case "after the abort":
			after = true
		}
		must(consumer.Ack(next))
	}

	step("conflict")
	holder, err := client.NewTransaction(time.Minute)
	must(err)
	must(consumer.AckWithTxn(second, holder))
	other, err := client.NewTransaction(time.Minute)
	must(err)
	tell("acknowledge twice", consumer.AckWithTxn(second, other))
	tell("abort", other.Abort(ctx))
	tell("commit", holder.Commit(ctx))
	tell("commit again", holder.Commit(ctx))
	step("close")
	consumer.Close()
	producer.Close()
	client.Close()
	step("end")
}

// Transactions that are open while their topic migrates to another cluster. What the broker refuses is printed with its reason.
func movedTransactions(url string, topic string) {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*timeout)
	defer cancel()
	// A redirected request gets no response: the client uses the other cluster once the request has timed out.
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, OperationTimeout: 3 * time.Second, EnableTransaction: true})
	must(err)
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	must(err)
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, SendTimeout: -1})
	must(err)
	send := func(text string, txn pulsar.Transaction) error {
		_, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(text), Transaction: txn})
		return err
	}
	receive := func() pulsar.Message {
		message, err := consumer.Receive(ctx)
		must(err)
		return message
	}
	begin := func(duration time.Duration) pulsar.Transaction {
		txn, err := client.NewTransaction(duration)
		must(err)
		return txn
	}
	must(send("kept", nil))
	must(send("given back", nil))
	kept, back := receive(), receive()
	committed := begin(time.Minute)
	must(send("committed", committed))
	must(consumer.AckWithTxn(kept, committed))
	late := begin(10 * time.Second)
	must(send("late", late))
	must(consumer.AckWithTxn(back, late))
	fmt.Println("step migrate")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	must(committed.Commit(ctx))
	for i := 0; i < 2; i++ {
		message := receive()
		fmt.Printf("received %s %d\n", message.Payload(), message.RedeliveryCount())
		must(consumer.Ack(message))
	}
	must(send("there", nil))
	there := receive()
	fmt.Printf("received %s\n", there.Payload())
	must(consumer.Ack(there))
	refused := begin(time.Minute)
	if err := send("lost", refused); err != nil {
		fmt.Printf("refused %q\n", err)
	}
	// The client notes the failure after Send has returned, so that this may also succeed.
	fmt.Println("commit:", refused.Commit(ctx))
	must(send("last", nil))
	// A producer that reconnects publishes "there" again if it has not seen the receipt yet.
	for string(receive().Payload()) != "last" {
	}
	fmt.Println("received last")
}
