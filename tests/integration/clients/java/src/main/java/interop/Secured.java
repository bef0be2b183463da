package interop;

import static interop.Checks.check;
import static interop.Checks.expect;

import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.impl.auth.oauth2.AuthenticationFactoryOAuth2;

/** TLS with each provider; what is refused, and how. */
public final class Secured {
    private static final int SECONDS = 30;
    private static final String BASIC = "org.apache.pulsar.client.impl.auth.AuthenticationBasic";

    private final Map<String, String> options;

    private Secured(Map<String, String> options) {
        this.options = options;
    }

    public static void main(String[] arguments) throws Exception {
        Secured run = new Secured(Checks.options(arguments));
        Map<String, String> options = run.options;
        check("token", 1, () -> run.exchange("java-token", AuthenticationFactory.token(options.get("token"))));
        check("basic", 1, () -> run.exchange("java-basic",
                AuthenticationFactory.create(BASIC, options.get("basic"))));
        check("certificate", 1, () -> run.exchange("java-certificate",
                AuthenticationFactory.TLS(options.get("certificate"), options.get("key"))));
        check("oauth2", 1, () -> run.exchange("java-oauth2", AuthenticationFactoryOAuth2.clientCredentials(
                new URL(options.get("issuer")),
                new URL("file://" + options.get("credentials")),
                options.get("audience"))));
        check("unknown", 0, () -> run.unknown(AuthenticationFactory.token(options.get("wrong"))));
        check("not allowed", 0, () -> run.notAllowed(AuthenticationFactory.token(options.get("stranger"))));
    }

    private PulsarClient client(Authentication authentication) throws PulsarClientException {
        return PulsarClient.builder()
                .serviceUrl(options.get("tls"))
                .tlsTrustCertsFilePath(options.get("trust"))
                .enableTlsHostnameVerification(true)
                .authentication(authentication)
                .operationTimeout(5, TimeUnit.SECONDS)
                .build();
    }

    private String topic(String name) {
        return "persistent://" + options.get("namespace") + "/" + name;
    }

    private void exchange(String name, Authentication authentication) throws Exception {
        try (PulsarClient client = client(authentication);
                Consumer<byte[]> consumer =
                        client.newConsumer().topic(topic(name)).subscriptionName("s").subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic(name)).create()) {
            producer.send("content".getBytes(StandardCharsets.UTF_8));
            Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
            expect(message != null, "nothing arrived");
            consumer.acknowledge(message);
        }
    }

    private void unknown(Authentication authentication) throws Exception {
        try (PulsarClient client = client(authentication)) {
            client.newProducer().topic(topic("never")).create();
        } catch (PulsarClientException.AuthenticationException refused) {
            return;
        }
        throw new Checks.Failed("a token of another key was taken");
    }

    private void notAllowed(Authentication authentication) throws Exception {
        try (PulsarClient client = client(authentication)) {
            client.newProducer().topic(topic("never")).create();
        } catch (PulsarClientException.AuthorizationException refused) {
            return;
        }
        throw new Checks.Failed("a role without a permission was let in");
    }
}
