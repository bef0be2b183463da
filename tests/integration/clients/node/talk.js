// Publishes 500 messages and consumes them over WebSocket: node talk.js ws://HOST:PORT TOPIC
// TOPIC: domain/tenant/namespace/topic. Prints one JSON object: what arrived, in order.
const WebSocket = require("ws");

const [base, topic] = process.argv.slice(2);
const MESSAGES = 500;

const consumer = new WebSocket(`${base}/ws/v2/consumer/${topic}/node?subscriptionType=Shared&receiverQueueSize=50`);
const arrived = [];
const receipts = [];

consumer.on("open", () => {
  const producer = new WebSocket(`${base}/ws/v2/producer/${topic}?batchingEnabled=true`, { perMessageDeflate: true });
  producer.on("open", () => {
    for (let number = 0; number < MESSAGES; number += 1) {
      const payload = Buffer.from(`message ${number}`).toString("base64");
      producer.send(JSON.stringify({ payload, key: `k${number % 7}`, context: `${number}` }));
    }
  });
  producer.on("message", (data) => {
    const receipt = JSON.parse(data);
    if (receipt.result !== "ok") throw new Error(data);
    receipts.push(Number(receipt.context));
    if (receipts.length === MESSAGES) producer.close();
  });
});

consumer.on("message", (data) => {
  const message = JSON.parse(data);
  arrived.push(Buffer.from(message.payload, "base64").toString());
  consumer.send(JSON.stringify({ messageId: message.messageId }));
  if (arrived.length === MESSAGES) consumer.close();
});

consumer.on("close", (code) => {
  console.log(JSON.stringify({ code, arrived, receipts }));
});
