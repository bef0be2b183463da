//! Reports checks as JSON lines on standard output.

use std::{fmt::Display, future::Future, time::Instant};

use serde_json::{json, Value};

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub fn say(fields: Value) {
    println!("{fields}");
}

/// Runs the body as one check; ends the program with 1 when it fails.
pub async fn check<T>(name: String, messages: usize, body: impl Future<Output = Outcome<T>>) {
    let begin = Instant::now();
    if let Err(error) = body.await {
        say(json!({"check": name, "ok": false, "reason": error.to_string()}));
        std::process::exit(1);
    }
    let seconds = begin.elapsed().as_secs_f64();
    say(json!({"check": name, "ok": true, "messages": messages, "seconds": seconds}));
}

pub fn expect(condition: bool, reason: impl Display) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(reason.to_string().into())
    }
}
