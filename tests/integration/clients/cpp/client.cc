// A C++ program on Apache's C++ client, libpulsar. It is the library in the wheel of the Python client, which brings
// no headers: what is used of its C interface (pulsar/c/*.h) is declared here.
//
//     client --url URL --prefix PREFIX [--http URL, which is used instead]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
using Configuration = struct client_configuration;
using Client = struct client;
using ProducerConfiguration = struct producer_configuration;
using Producer = struct producer;
using ConsumerConfiguration = struct consumer_configuration;
using Consumer = struct consumer;
using Message = struct message;
using TopicMetadata = struct topic_metadata;
using Router = int (*)(Message *, TopicMetadata *, void *);
enum Result { Ok = 0, Timeout = 3 };
enum Routing { SinglePartition = 0, RoundRobin = 1, Custom = 2 };
enum Type { Exclusive = 0, Shared = 1, Failover = 2, KeyShared = 3 };
enum Position { Latest = 0, Earliest = 1 };

Configuration *pulsar_client_configuration_create();
void pulsar_client_configuration_free(Configuration *);
Client *pulsar_client_create(const char *, const Configuration *);
Result pulsar_client_close(Client *);
void pulsar_client_free(Client *);
Result pulsar_client_create_producer(Client *, const char *, const ProducerConfiguration *, Producer **);
Result pulsar_client_subscribe(Client *, const char *, const char *, const ConsumerConfiguration *, Consumer **);
Result pulsar_client_subscribe_multi_topics(
    Client *, const char **, int, const char *, const ConsumerConfiguration *, Consumer **);
ProducerConfiguration *pulsar_producer_configuration_create();
void pulsar_producer_configuration_free(ProducerConfiguration *);
void pulsar_producer_configuration_set_partitions_routing_mode(ProducerConfiguration *, Routing);
void pulsar_producer_configuration_set_message_router(ProducerConfiguration *, Router, void *);
void pulsar_producer_configuration_set_batching_enabled(ProducerConfiguration *, int);
Result pulsar_producer_send(Producer *, Message *);
Result pulsar_producer_close(Producer *);
void pulsar_producer_free(Producer *);
int pulsar_topic_metadata_get_num_partitions(TopicMetadata *);
ConsumerConfiguration *pulsar_consumer_configuration_create();
void pulsar_consumer_configuration_free(ConsumerConfiguration *);
void pulsar_consumer_configuration_set_consumer_type(ConsumerConfiguration *, Type);
void pulsar_consumer_set_subscription_initial_position(ConsumerConfiguration *, Position);
void pulsar_configure_set_negative_ack_redelivery_delay_ms(ConsumerConfiguration *, long);
Result pulsar_consumer_receive_with_timeout(Consumer *, Message **, int);
Result pulsar_consumer_acknowledge(Consumer *, Message *);
void pulsar_consumer_negative_acknowledge(Consumer *, Message *);
Result pulsar_consumer_seek_by_timestamp(Consumer *, uint64_t);
Result pulsar_consumer_close(Consumer *);
void pulsar_consumer_free(Consumer *);
Message *pulsar_message_create();
void pulsar_message_free(Message *);
void pulsar_message_set_content(Message *, const void *, size_t);
void pulsar_message_set_partition_key(Message *, const char *);
const void *pulsar_message_get_data(Message *);
uint32_t pulsar_message_get_length(Message *);
const char *pulsar_message_get_topic_name(Message *);
int pulsar_message_get_redelivery_count(Message *);
const char *pulsar_result_str(Result);
}

namespace {
constexpr int kMilliseconds = 30000;

void done(Result result, const std::string &what) {
    if (result != Ok) throw std::runtime_error(what + ": " + pulsar_result_str(result));
}

void expect(bool condition, const std::string &reason) {
    if (!condition) throw std::runtime_error(reason);
}

struct Received {
    std::string topic, text;
    int redeliveries;
};

class Sending {
   public:
    Sending(Client *client, const std::string &topic, Routing routing, Router router = nullptr, bool batching = false) {
        ProducerConfiguration *with = pulsar_producer_configuration_create();
        pulsar_producer_configuration_set_batching_enabled(with, batching);
        pulsar_producer_configuration_set_partitions_routing_mode(with, routing);
        if (router) pulsar_producer_configuration_set_message_router(with, router, nullptr);
        Result result = pulsar_client_create_producer(client, topic.c_str(), with, &producer_);
        pulsar_producer_configuration_free(with);
        done(result, "a producer of " + topic);
    }
    ~Sending() {
        pulsar_producer_close(producer_);
        pulsar_producer_free(producer_);
    }
    void send(const std::string &text, const std::string &key = "") {
        Message *message = pulsar_message_create();
        pulsar_message_set_content(message, text.data(), text.size());
        if (!key.empty()) pulsar_message_set_partition_key(message, key.c_str());
        Result result = pulsar_producer_send(producer_, message);
        pulsar_message_free(message);
        done(result, "sending " + text);
    }

   private:
    Producer *producer_ = nullptr;
};

class Receiving {
   public:
    Receiving(Client *client, const std::vector<std::string> &topics, Type type) {
        ConsumerConfiguration *with = pulsar_consumer_configuration_create();
        pulsar_consumer_configuration_set_consumer_type(with, type);
        pulsar_consumer_set_subscription_initial_position(with, Earliest);
        pulsar_configure_set_negative_ack_redelivery_delay_ms(with, 100);
        std::vector<const char *> names;
        for (const std::string &topic : topics) names.push_back(topic.c_str());
        Result result = topics.size() == 1
                            ? pulsar_client_subscribe(client, names[0], "s", with, &consumer_)
                            : pulsar_client_subscribe_multi_topics(client, names.data(), static_cast<int>(names.size()),
                                                                   "s", with, &consumer_);
        pulsar_consumer_configuration_free(with);
        done(result, "a consumer of " + topics[0]);
    }
    ~Receiving() {
        pulsar_consumer_close(consumer_);
        pulsar_consumer_free(consumer_);
    }
    Received next(bool acknowledge = true) {
        Message *message = nullptr;
        done(pulsar_consumer_receive_with_timeout(consumer_, &message, kMilliseconds), "a message");
        Received found{pulsar_message_get_topic_name(message),
                       std::string(static_cast<const char *>(pulsar_message_get_data(message)),
                                   pulsar_message_get_length(message)),
                       pulsar_message_get_redelivery_count(message)};
        if (acknowledge) {
            Result result = pulsar_consumer_acknowledge(consumer_, message);
            pulsar_message_free(message);
            done(result, "acknowledging");
        } else {
            pulsar_consumer_negative_acknowledge(consumer_, message);
            pulsar_message_free(message);
        }
        return found;
    }
    void nothing() {
        Message *message = nullptr;
        expect(pulsar_consumer_receive_with_timeout(consumer_, &message, 500) == Timeout, "one message more");
    }
    void from_the_start() { done(pulsar_consumer_seek_by_timestamp(consumer_, 1), "seeking"); }

   private:
    Consumer *consumer_ = nullptr;
};

int odd_to_the_last(Message *message, TopicMetadata *metadata, void *) {
    const std::string text(static_cast<const char *>(pulsar_message_get_data(message)),
                           pulsar_message_get_length(message));
    return pulsar_topic_metadata_get_num_partitions(metadata) - 1 - std::atoi(text.c_str()) % 2;
}

void in_order(Client *client, const std::string &topic) {
    Receiving receiving(client, {topic}, Exclusive);
    Sending sending(client, topic, RoundRobin, nullptr, true);
    for (int number = 0; number < 100; number++) sending.send(std::to_string(number));
    for (int round = 0; round < 2; round++) {
        for (int number = 0; number < 100; number++) {
            const std::string text = receiving.next().text;
            expect(text == std::to_string(number), text + " in place of " + std::to_string(number));
        }
        receiving.nothing();
        receiving.from_the_start();
    }
}

void again(Client *client, const std::string &topic) {
    Receiving receiving(client, {topic}, Shared);
    Sending(client, topic, RoundRobin).send("x");
    for (int count = 0; count < 3; count++) {
        const Received found = receiving.next(count == 2);
        expect(found.redeliveries == count, "redelivered " + std::to_string(found.redeliveries) + " times");
    }
    receiving.nothing();
}

void list(Client *client, const std::vector<std::string> &topics) {
    Receiving receiving(client, topics, Exclusive);
    for (const std::string &topic : topics) Sending(client, topic, RoundRobin).send(topic);
    std::set<std::string> seen;
    for (size_t number = 0; number < topics.size(); number++) {
        const Received found = receiving.next();
        expect(found.topic == found.text, found.text + " came of " + found.topic);
        seen.insert(found.topic);
    }
    expect(seen.size() == topics.size(), "messages of " + std::to_string(seen.size()) + " topics");
}

std::map<std::string, std::set<int>> routed(Client *client, const std::string &topic, Routing routing, Router router) {
    Receiving receiving(client, {topic}, Exclusive);
    Sending sending(client, topic, routing, router);
    for (int number = 0; number < 20; number++) sending.send(std::to_string(number));
    std::map<std::string, std::set<int>> found;
    for (int number = 0; number < 20; number++) {
        const Received each = receiving.next();
        found[each.topic].insert(std::stoi(each.text));
    }
    return found;
}

void single(Client *client, const std::string &topic) {
    const auto found = routed(client, topic, SinglePartition, nullptr);
    expect(found.size() == 1, "messages in " + std::to_string(found.size()) + " partitions");
}

void custom(Client *client, const std::string &topic) {
    auto found = routed(client, topic, Custom, odd_to_the_last);
    expect(found.size() == 2, "messages in " + std::to_string(found.size()) + " partitions");
    for (int each : found[topic + "-partition-3"]) expect(each % 2 == 0, "an odd one in the last partition");
    for (int each : found[topic + "-partition-2"]) expect(each % 2 == 1, "an even one in the one before");
}

template <typename Work>
bool check(const char *name, Work work) {
    std::string reason;
    try {
        work();
    } catch (const std::exception &error) {
        reason = error.what();
    }
    std::printf("{\"check\": \"%s\", \"ok\": %s, \"reason\": \"%s\"}\n", name, reason.empty() ? "true" : "false",
                reason.c_str());
    std::fflush(stdout);
    return reason.empty();
}
}  // namespace

int main(int count, char **given) {
    std::map<std::string, std::string> options;
    for (int index = 1; index + 1 < count; index += 2) options[given[index]] = given[index + 1];
    const std::string prefix = "persistent://public/default/" + options["--prefix"] + "-";
    Configuration *with = pulsar_client_configuration_create();
    const std::string url = options[options.count("--http") ? "--http" : "--url"];
    Client *client = pulsar_client_create(url.c_str(), with);
    bool good = check("in-order", [&] { in_order(client, prefix + "in-order"); });
    good &= check("again", [&] { again(client, prefix + "again"); });
    good &= check("list", [&] { list(client, {prefix + "a", prefix + "b", prefix + "c"}); });
    good &= check("single-partition", [&] { single(client, prefix + "single"); });
    good &= check("custom-router", [&] { custom(client, prefix + "custom"); });
    pulsar_client_close(client);
    pulsar_client_free(client);
    pulsar_client_configuration_free(with);
    return good ? 0 : 1;
}
