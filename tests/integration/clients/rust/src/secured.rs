//! TLS with each provider that the client has; what is refused, and how.

use std::collections::HashMap;

use futures::TryStreamExt;
use pulsar::{
    authentication::{basic::BasicAuthentication, Authentication},
    ConnectionRetryOptions, OperationRetryOptions, Pulsar, TokioExecutor,
};
use tokio::time::timeout;

use crate::{
    checks::{check, expect, Outcome},
    Client, Receiver, PATIENCE,
};

/// What the client says when a broker refuses who it is: it keeps the broker's reason to itself.
const UNTOLD: &str = "fatal error when connecting";

pub struct Secured<'a> {
    options: HashMap<&'a str, &'a str>,
}

impl<'a> Secured<'a> {
    pub fn new(options: HashMap<&'a str, &'a str>) -> Self {
        Self { options }
    }

    pub async fn all(&self) {
        let name = |what: &str| what.to_owned();
        let basic = BasicAuthentication::new(self.options["user"], self.options["password"]);
        check(
            name("token"),
            1,
            self.exchange("rust-token", self.token("token")),
        )
        .await;
        check(name("basic"), 1, self.exchange("rust-basic", basic)).await;
        check(name("unknown"), 0, self.refused("wrong", UNTOLD)).await;
        check(
            name("not allowed"),
            0,
            self.refused("stranger", "AuthorizationError"),
        )
        .await;
    }

    fn token(&self, name: &str) -> Box<dyn Authentication> {
        Box::new(pulsar::Authentication {
            name: "token".to_owned(),
            data: self.options[name].as_bytes().to_vec(),
        })
    }

    fn topic(&self, name: &str) -> String {
        format!("persistent://{}/{name}", self.options["namespace"])
    }

    async fn client(&self, proof: Box<dyn Authentication>) -> Result<Client, pulsar::Error> {
        Pulsar::builder(self.options["tls"], TokioExecutor)
            .with_auth_provider(proof)
            .with_certificate_chain_file(self.options["trust"])
            .map_err(|error| pulsar::Error::Custom(error.to_string()))?
            .with_tls_hostname_verification_enabled(true)
            .with_operation_retry_options(OperationRetryOptions {
                max_retries: Some(1),
                ..Default::default()
            })
            .with_connection_retry_options(ConnectionRetryOptions {
                max_retries: 1,
                ..Default::default()
            })
            .build()
            .await
    }

    async fn exchange(&self, name: &str, proof: Box<dyn Authentication>) -> Outcome {
        let client = self.client(proof).await?;
        let topic = self.topic(name);
        let mut consumer: Receiver = client
            .consumer()
            .with_topic(&topic)
            .with_subscription("s")
            .build()
            .await?;
        let mut producer = client.producer().with_topic(&topic).build().await?;
        producer
            .send_non_blocking(b"content".to_vec())
            .await?
            .await?;
        let message = timeout(PATIENCE, consumer.try_next()).await??;
        let message = message.ok_or("nothing arrived")?;
        expect(
            message.payload.data == b"content",
            "another content arrived",
        )?;
        Ok(consumer.ack(&message).await?)
    }

    async fn refused(&self, token: &str, wanted: &str) -> Outcome {
        let made = match self.client(self.token(token)).await {
            Ok(client) => client
                .producer()
                .with_topic(self.topic("never"))
                .build()
                .await
                .map(|_| ()),
            Err(error) => Err(error),
        };
        let told = format!("{:?}", made.err().ok_or("it was let in")?);
        expect(told.contains(wanted), told)
    }
}
