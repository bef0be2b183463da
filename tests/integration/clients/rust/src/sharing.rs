//! Several consumers of one subscription, and a broker that restarts.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use futures::TryStreamExt;
use pulsar::{compression::Compression, SubType};
use serde_json::json;
use tokio::time::{sleep, timeout, Instant};

use crate::{
    checks::{check, expect, say, Outcome},
    connect, number, payload, receive_from, send_all, Receiver, Run, Sender,
};

const SHARED_MESSAGES: usize = 1000;
const LIMIT: Duration = Duration::from_secs(60);

impl Run {
    pub async fn shared(&self) {
        let topic = self.topic("shared");
        check(
            "two consumers share a subscription".into(),
            SHARED_MESSAGES,
            async {
                let mut first = self.subscribe(&topic, "s", SubType::Shared).await?;
                let mut second = self.subscribe(&topic, "s", SubType::Shared).await?;
                let mut producer = self.producer(&topic, false, Compression::None).await?;
                let total = AtomicUsize::new(0);
                let (sent, one, other) = futures::join!(
                    send_all(&mut producer, 0, SHARED_MESSAGES),
                    take_part(&mut first, &total),
                    take_part(&mut second, &total)
                );
                sent?;
                let (one, other) = (one?, other?);
                expect(
                    !one.is_empty() && !other.is_empty(),
                    "one consumer got nothing",
                )?;
                let sizes = (one.len(), other.len());
                expect(
                    sizes.0 + sizes.1 == SHARED_MESSAGES,
                    format!("{sizes:?} messages arrived"),
                )?;
                let together: HashSet<usize> = one.into_iter().chain(other).collect();
                expect(together.len() == SHARED_MESSAGES, "a message is missing")
            },
        )
        .await;
    }

    pub async fn exclusive(&self) {
        let topic = self.topic("exclusive");
        check("a second exclusive consumer is refused".into(), 10, async {
            let mut holder = self.subscribe(&topic, "s", SubType::Exclusive).await?;
            let other = connect(&self.url, Some(1)).await?;
            let refused = other
                .consumer()
                .with_topic(&topic)
                .with_subscription("s")
                .with_subscription_type(SubType::Exclusive)
                .build::<Vec<u8>>()
                .await;
            let Err(error) = refused else {
                return Err("the second consumer was accepted".into());
            };
            expect(
                format!("{error:?}").contains("ConsumerBusy"),
                format!("refused with {error:?}"),
            )?;
            holder.close().await?;
            let mut second = self.subscribe(&topic, "s", SubType::Exclusive).await?;
            let mut producer = self.producer(&topic, false, Compression::None).await?;
            send_all(&mut producer, 0, 10).await?;
            receive_from(&mut second, 0, 10, false).await
        })
        .await;
    }

    pub async fn restart(&self) {
        let topic = self.topic("restart");
        check("nothing is lost over a restart".into(), 0, async {
            let mut consumer = self.subscribe(&topic, "s", SubType::Exclusive).await?;
            let mut producer = self.producer(&topic, false, Compression::None).await?;
            let wanted = AtomicUsize::new(usize::MAX);
            let (sent, received) = futures::join!(
                send_over_restart(&mut producer, &wanted),
                first_occurrences(&mut consumer, &wanted)
            );
            let (sent, received) = (sent?, received?);
            expect(
                received.len() == sent,
                format!("{} messages received, {sent} sent", received.len()),
            )?;
            let in_order = received
                .iter()
                .enumerate()
                .all(|(expected, index)| expected == *index);
            expect(in_order, "first occurrences are out of order")
        })
        .await;
    }
}

/// Receives until both consumers together have everything, and a little longer.
async fn take_part(consumer: &mut Receiver, total: &AtomicUsize) -> Outcome<Vec<usize>> {
    let mut part = Vec::new();
    let end = Instant::now() + LIMIT;
    let mut idle_after_all = 0;
    while Instant::now() < end && idle_after_all < 4 {
        match timeout(Duration::from_millis(50), consumer.try_next()).await {
            Ok(message) => {
                let message = message?.ok_or("the consumer ended")?;
                consumer.ack(&message).await?;
                part.push(number(&message.deserialize()));
                total.fetch_add(1, Ordering::SeqCst);
            }
            Err(_) if total.load(Ordering::SeqCst) >= SHARED_MESSAGES => idle_after_all += 1,
            Err(_) => {}
        }
    }
    Ok(part)
}

/// Sends message after message, each again until it succeeds; the number of messages.
async fn send_over_restart(producer: &mut Sender, wanted: &AtomicUsize) -> Outcome<usize> {
    static BACK: AtomicBool = AtomicBool::new(false);
    let mut sent = 0;
    let mut last = usize::MAX;
    while sent < last {
        send_until_it_succeeds(producer, sent).await?;
        sent += 1;
        if sent == 300 {
            say(json!({"event": "restart"}));
            std::thread::spawn(|| {
                let mut line = String::new();
                BACK.store(
                    std::io::stdin().read_line(&mut line).is_ok(),
                    Ordering::SeqCst,
                );
            });
        }
        if last == usize::MAX && BACK.load(Ordering::SeqCst) {
            last = sent + 300;
        }
        sleep(Duration::from_millis(1)).await;
    }
    wanted.store(sent, Ordering::SeqCst);
    Ok(sent)
}

async fn send_until_it_succeeds(producer: &mut Sender, index: usize) -> Outcome {
    let end = Instant::now() + LIMIT;
    loop {
        let attempt = async { producer.send_non_blocking(payload(index)).await?.await };
        match timeout(Duration::from_secs(10), attempt).await {
            Ok(Ok(_)) => return Ok(()),
            failed if Instant::now() > end => {
                return Err(format!("message {index}: {failed:?}").into())
            }
            _ => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Receives until `wanted` messages are there; their numbers in the order of their first arrival.
async fn first_occurrences(consumer: &mut Receiver, wanted: &AtomicUsize) -> Outcome<Vec<usize>> {
    let mut seen = HashSet::new();
    let mut order = Vec::new();
    let end = Instant::now() + 2 * LIMIT;
    while order.len() < wanted.load(Ordering::SeqCst) && Instant::now() < end {
        if let Ok(message) = timeout(Duration::from_millis(100), consumer.try_next()).await {
            let message = message?.ok_or("the consumer ended")?;
            let index = number(&message.deserialize());
            if seen.insert(index) {
                order.push(index);
            }
            // An acknowledgement over a broken connection fails; the message comes again then.
            let _ = consumer.ack(&message).await;
        }
    }
    Ok(order)
}
