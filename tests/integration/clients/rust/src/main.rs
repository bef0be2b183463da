//! The Rust client through every scenario; see ../README.md.

mod checks;
mod secured;
mod sharing;

use std::{collections::HashMap, time::Duration};

use checks::{check, expect, Outcome};
use futures::{future::try_join_all, TryStreamExt};
use pulsar::{
    compression::{
        Compression, CompressionLz4, CompressionSnappy, CompressionZlib, CompressionZstd,
    },
    consumer::ConsumerOptions,
    proto::MessageIdData,
    reader::Reader,
    ConnectionRetryOptions, Consumer, OperationRetryOptions, Producer, ProducerOptions, Pulsar,
    SubType, TokioExecutor,
};
use tokio::time::{sleep, timeout};

pub type Client = Pulsar<TokioExecutor>;
pub type Sender = Producer<TokioExecutor>;
pub type Receiver = Consumer<Vec<u8>, TokioExecutor>;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Run {
    pub client: Client,
    pub url: String,
    prefix: String,
    messages: usize,
    sync_messages: usize,
}

fn codecs() -> Vec<(&'static str, Compression)> {
    vec![
        ("NONE", Compression::None),
        ("LZ4", Compression::Lz4(CompressionLz4::default())),
        ("ZLIB", Compression::Zlib(CompressionZlib::default())),
        ("ZSTD", Compression::Zstd(CompressionZstd::default())),
        ("SNAPPY", Compression::Snappy(CompressionSnappy::default())),
    ]
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options: HashMap<&str, &str> = arguments
        .chunks_exact(2)
        .map(|pair| (pair[0].trim_start_matches("--"), pair[1].as_str()))
        .collect();
    if options["scenario"] == "secured" {
        secured::Secured::new(options).all().await;
        return Ok(());
    }
    let number =
        |name: &str, default: usize| options.get(name).map_or(Ok(default), |text| text.parse());
    let run = Run {
        client: connect(options["url"], None).await?,
        url: options["url"].to_owned(),
        prefix: options["prefix"].to_owned(),
        messages: number("messages", 10_000)?,
        sync_messages: number("sync-messages", 500)?,
    };
    match options["scenario"] {
        "async-batched" => run.asynchronous(true).await,
        "async-unbatched" => run.asynchronous(false).await,
        "sync-batched" => run.one_by_one(true).await,
        "sync-unbatched" => run.one_by_one(false).await,
        "reader" => run.reader().await?,
        "seek" => run.seek().await?,
        "shared" => run.shared().await,
        "exclusive" => run.exclusive().await,
        "restart" => run.restart().await,
        unknown => return Err(format!("unknown scenario {unknown}").into()),
    }
    Ok(())
}

/// Connects; `max_retries` is for what the broker refuses for the time being (None: for ever).
pub async fn connect(url: &str, max_retries: Option<u32>) -> Outcome<Client> {
    let operations = OperationRetryOptions {
        operation_timeout: PATIENCE,
        retry_delay: Duration::from_millis(100),
        max_retries,
    };
    let connections = ConnectionRetryOptions {
        max_retries: 200,
        max_backoff: Duration::from_millis(200),
        ..Default::default()
    };
    Ok(Pulsar::builder(url, TokioExecutor)
        .with_operation_retry_options(operations)
        .with_connection_retry_options(connections)
        .with_outbound_channel_size(1000)
        .build()
        .await?)
}

pub fn payload(index: usize) -> Vec<u8> {
    format!("{index}:{}", "x".repeat(index % 100)).into_bytes()
}

pub fn number(payload: &[u8]) -> usize {
    let text = String::from_utf8_lossy(payload);
    text.split(':')
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(usize::MAX)
}

fn batching(batched: bool) -> &'static str {
    if batched {
        "batched"
    } else {
        "unbatched"
    }
}

fn earliest() -> MessageIdData {
    MessageIdData {
        ledger_id: u64::MAX,
        entry_id: u64::MAX,
        ..Default::default()
    }
}

/// Sends without waiting for each; the ids, in order. Messages of one batch share an id here.
pub async fn send_all(
    producer: &mut Sender,
    from: usize,
    count: usize,
) -> Outcome<Vec<MessageIdData>> {
    let mut receipts = Vec::new();
    for index in from..from + count {
        receipts.push(producer.send_non_blocking(payload(index)).await?);
    }
    if producer.options().batch_size.is_some() {
        producer.send_batch().await?;
    }
    let receipts = timeout(PATIENCE * 2, try_join_all(receipts)).await??;
    Ok(receipts
        .into_iter()
        .filter_map(|receipt| receipt.message_id)
        .collect())
}

/// Receives the messages from `from` on; the first may be an earlier one when `earlier` allows it.
pub async fn receive_from(
    consumer: &mut Receiver,
    from: usize,
    end: usize,
    earlier: bool,
) -> Outcome {
    let mut index = from;
    while index < end {
        let Some(message) = timeout(PATIENCE, consumer.try_next()).await?? else {
            return Err("the consumer ended".into());
        };
        let found = message.deserialize();
        if earlier && index == from && number(&found) < from {
            index = number(&found);
        }
        expect(
            found == payload(index),
            format!("message {} instead of {index}", number(&found)),
        )?;
        consumer.ack(&message).await?;
        index += 1;
    }
    Ok(())
}

async fn expect_nothing(consumer: &mut Receiver) -> Outcome {
    match timeout(Duration::from_millis(300), consumer.try_next()).await {
        Err(_) => Ok(()),
        Ok(message) => Err(format!(
            "unexpected message {:?}",
            message?.map(|m| number(&m.deserialize()))
        )
        .into()),
    }
}

impl Run {
    pub fn topic(&self, name: &str) -> String {
        format!("persistent://public/default/{}-{name}", self.prefix)
    }

    pub async fn producer(
        &self,
        topic: &str,
        batched: bool,
        codec: Compression,
    ) -> Outcome<Sender> {
        let options = ProducerOptions {
            batch_size: batched.then_some(500),
            batch_timeout: batched.then_some(Duration::from_millis(1)),
            compression: Some(codec),
            block_queue_if_full: true,
            ..Default::default()
        };
        Ok(self
            .client
            .producer()
            .with_topic(topic)
            .with_options(options)
            .build()
            .await?)
    }

    pub async fn subscribe(&self, topic: &str, name: &str, kind: SubType) -> Outcome<Receiver> {
        let builder = self
            .client
            .consumer()
            .with_topic(topic)
            .with_subscription(name);
        Ok(builder.with_subscription_type(kind).build().await?)
    }

    /// Subscribes and leaves: from now on the broker keeps all messages, consumed or not.
    async fn keep(&self, topic: &str) -> Outcome {
        Ok(self
            .subscribe(topic, "keep", SubType::Exclusive)
            .await?
            .close()
            .await?)
    }

    async fn asynchronous(&self, batched: bool) {
        for (name, codec) in codecs() {
            let topic = self.topic(&format!("async-{batched}-{name}"));
            check(
                format!("{name} {} async", batching(batched)),
                self.messages,
                async {
                    let mut consumer = self.subscribe(&topic, "s", SubType::Exclusive).await?;
                    let mut producer = self.producer(&topic, batched, codec).await?;
                    let (sent, received) = futures::join!(
                        send_all(&mut producer, 0, self.messages),
                        receive_from(&mut consumer, 0, self.messages, false)
                    );
                    sent?;
                    received?;
                    expect_nothing(&mut consumer).await
                },
            )
            .await;
        }
    }

    async fn one_by_one(&self, batched: bool) {
        for (name, codec) in codecs() {
            let topic = self.topic(&format!("sync-{batched}-{name}"));
            check(
                format!("{name} {} sync", batching(batched)),
                self.sync_messages,
                async {
                    let mut consumer = self.subscribe(&topic, "s", SubType::Exclusive).await?;
                    let mut producer = self.producer(&topic, batched, codec).await?;
                    for index in 0..self.sync_messages {
                        send_all(&mut producer, index, 1).await?;
                    }
                    receive_from(&mut consumer, 0, self.sync_messages, false).await?;
                    expect_nothing(&mut consumer).await
                },
            )
            .await;
        }
    }

    async fn open_reader(
        &self,
        topic: &str,
        start: Option<MessageIdData>,
    ) -> Outcome<Reader<Vec<u8>, TokioExecutor>> {
        let options = ConsumerOptions {
            start_message_id: start,
            ..Default::default()
        };
        Ok(self
            .client
            .reader()
            .with_topic(topic)
            .with_options(options)
            .into_reader()
            .await?)
    }

    async fn reader(&self) -> Outcome {
        for batched in [false, true] {
            let topic = self.topic(&format!("reader-{batched}"));
            self.keep(&topic).await?;
            let mut producer = self.producer(&topic, batched, Compression::None).await?;
            let ids = send_all(&mut producer, 0, 100).await?;
            check(
                format!("reader from earliest, {}", batching(batched)),
                100,
                async {
                    read_from(
                        &mut self.open_reader(&topic, Some(earliest())).await?,
                        0,
                        100,
                        false,
                    )
                    .await
                },
            )
            .await;
            // This client does not skip within the first batch, nor the message of the id itself.
            check(
                format!("reader from an id, {}", batching(batched)),
                50,
                async {
                    read_from(
                        &mut self.open_reader(&topic, Some(ids[50].clone())).await?,
                        50,
                        100,
                        batched,
                    )
                    .await
                },
            )
            .await;
            check(
                format!("reader from latest, {}", batching(batched)),
                10,
                async {
                    let mut latest = self.open_reader(&topic, None).await?;
                    send_all(&mut producer, 100, 10).await?;
                    read_from(&mut latest, 100, 110, false).await?;
                    let more = timeout(Duration::from_millis(300), latest.try_next()).await;
                    expect(more.is_err(), "an unexpected message")
                },
            )
            .await;
        }
        Ok(())
    }

    async fn seek(&self) -> Outcome {
        for batched in [false, true] {
            let topic = self.topic(&format!("seek-{batched}"));
            self.keep(&topic).await?;
            let mut producer = self.producer(&topic, batched, Compression::None).await?;
            let ids = send_all(&mut producer, 0, 50).await?;
            sleep(Duration::from_millis(100)).await;
            let between = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)?
                .as_millis();
            sleep(Duration::from_millis(100)).await;
            send_all(&mut producer, 50, 50).await?;
            // A consumer's seek in this client subscribes again before it has left, which an exclusive
            // subscription refuses, and then waits for ever; a reader's does not.
            let mut reader = self.open_reader(&topic, Some(earliest())).await?;
            read_from(&mut reader, 0, 100, false).await?;
            let by_time = Some(u64::try_from(between)?);
            for (what, id, time, first) in [
                ("an id", Some(ids[30].clone()), None, 30),
                ("a time", None, by_time, 50),
                ("earliest", Some(earliest()), None, 0),
            ] {
                check(
                    format!("seek to {what}, {}", batching(batched)),
                    100 - first,
                    async {
                        reader.seek(id, time).await?;
                        read_from(&mut reader, first, 100, batched && what == "an id").await?;
                        let more = timeout(Duration::from_millis(300), reader.try_next()).await;
                        expect(more.is_err(), "an unexpected message")
                    },
                )
                .await;
            }
        }
        Ok(())
    }
}

async fn read_from(
    reader: &mut Reader<Vec<u8>, TokioExecutor>,
    from: usize,
    end: usize,
    earlier: bool,
) -> Outcome {
    let mut index = from;
    while index < end {
        let Some(message) = timeout(PATIENCE, reader.try_next()).await?? else {
            return Err("the reader ended".into());
        };
        let found = message.deserialize();
        if earlier && index == from && number(&found) < from {
            index = number(&found);
        }
        expect(
            found == payload(index),
            format!("message {} instead of {index}", number(&found)),
        )?;
        index += 1;
    }
    Ok(())
}
