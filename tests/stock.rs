//! A client library of somebody else's, used as its manual says.

mod common;

use common::{Broker, PATIENCE};
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v5::{
    Packet, PubAckReason, Publish, PublishProperties, SubscribeReasonCode,
};
use rumqttc::{BrokerSessionResumePolicy, Client, Connection, Event, MqttOptions, PublishOptions};

/// A connected client and its side of the conversation.
struct Stock {
    client: Client,
    connection: Connection,
    session_present: bool,
    /// PUBACKs that came while something else was waited for.
    pubacks: usize,
}

impl Stock {
    fn connect(broker: &Broker, name: &str, durable: bool) -> Self {
        let address = broker.address();
        let mut options = MqttOptions::new(name, (address.ip().to_string(), address.port()));
        options.set_clean_start(!durable);
        if durable {
            options.set_session_expiry_interval(Some(3600));
            // Each connection here is a process that remembers nothing itself.
            options.set_broker_session_resume_policy(BrokerSessionResumePolicy::AllowBrokerOnly);
        }
        let (client, connection) = Client::builder(options).capacity(2000).build();
        let mut stock = Stock {
            client,
            connection,
            session_present: false,
            pubacks: 0,
        };
        stock.session_present = stock.wait_for(|packet| match packet {
            Packet::ConnAck(connack) => Some(connack.session_present),
            _ => None,
        });
        stock
    }

    fn wait_for<T>(&mut self, choose: impl Fn(&Packet) -> Option<T>) -> T {
        loop {
            let packet = self.incoming();
            if let Some(chosen) = choose(&packet) {
                return chosen;
            }
            self.count(&packet);
        }
    }

    fn incoming(&mut self) -> Packet {
        loop {
            let event = self.connection.recv_timeout(PATIENCE).expect("an event");
            if let Event::Incoming(packet) = event.expect("a connection") {
                return packet;
            }
        }
    }

    fn count(&mut self, packet: &Packet) {
        if let Packet::PubAck(puback) = packet {
            assert_eq!(puback.reason, PubAckReason::Success);
            self.pubacks += 1;
        }
    }

    fn subscribe(&mut self, filter: &str) {
        self.client
            .subscribe(filter, QoS::AtLeastOnce)
            .expect("a SUBSCRIBE");
        let codes = self.wait_for(|packet| match packet {
            Packet::SubAck(suback) => Some(suback.return_codes.clone()),
            _ => None,
        });
        assert_eq!(codes, [SubscribeReasonCode::Success(QoS::AtLeastOnce)]);
    }

    fn publish(&mut self, topic: &str, payload: String) {
        let options = PublishOptions::at_least_once();
        self.client
            .publish(topic, payload, options)
            .expect("a PUBLISH");
    }

    fn expect_pubacks(&mut self, count: usize) {
        while self.pubacks < count {
            let packet = self.incoming();
            assert!(!matches!(packet, Packet::Disconnect(_)), "{packet:?}");
            self.count(&packet);
        }
        self.pubacks -= count;
    }

    fn delivery(&mut self) -> Publish {
        self.wait_for(|packet| match packet {
            Packet::Publish(publish) => Some(publish.clone()),
            _ => None,
        })
    }

    fn answer(&mut self, job: &Publish, word: &str) {
        let asked = job.properties.as_ref().expect("properties");
        let properties = PublishProperties {
            correlation_data: asked.correlation_data.clone(),
            ..PublishProperties::default()
        };
        let topic = asked.response_topic.clone().expect("a Response Topic");
        let options = PublishOptions::at_least_once().properties(properties);
        self.client
            .publish(topic, word.to_owned(), options)
            .expect("an answer");
    }
}

fn number(event: &Publish) -> u32 {
    let digits = std::str::from_utf8(&event.payload).expect("digits");
    digits.parse().expect("a number")
}

fn label<'a>(publish: &'a Publish, key: &str) -> &'a str {
    let properties = publish.properties.as_ref().expect("properties");
    let mut pairs = properties.user_properties.iter();
    let found = pairs.find(|(name, _)| name == key);
    found
        .unwrap_or_else(|| panic!("no {key} on {publish:?}"))
        .1
        .as_str()
}

#[test]
fn events_are_replayed_and_resumed_across_a_kill() {
    let mut broker = Broker::start();
    let mut publisher = Stock::connect(&broker, "publisher", false);
    for number in 1..=1000 {
        publisher.publish("events/line", number.to_string());
    }
    publisher.expect_pubacks(1000);
    broker.restart();
    let mut consumer = Stock::connect(&broker, "durable", true);
    assert!(!consumer.session_present);
    consumer.subscribe("events/#");
    for number in 1..=400 {
        assert_eq!(consumer.delivery().payload, number.to_string());
    }
    // The broker reads in order: what was acknowledged before this it has heard.
    consumer.publish("talk/barrier", String::new());
    consumer.expect_pubacks(1);
    assert_eq!(broker.stop().code(), Some(0));
    broker.launch();
    publisher = Stock::connect(&broker, "publisher", false);
    publisher.publish("events/line", "1001".into());
    publisher.expect_pubacks(1);
    let mut consumer = Stock::connect(&broker, "durable", true);
    assert!(consumer.session_present);
    // The library acknowledges what it has read, which may be more than it was asked for.
    let first = number(&consumer.delivery());
    assert!(first > 400, "{first}");
    for number in first + 1..=1001 {
        assert_eq!(consumer.delivery().payload, number.to_string());
    }
    let mut new = Stock::connect(&broker, "new", false);
    new.subscribe("events/#");
    for number in 1..=1001 {
        assert_eq!(new.delivery().payload, number.to_string());
    }
}

#[test]
fn a_job_is_timed_out_returned_and_dead_lettered() {
    let mut broker = Broker::start();
    let mut publisher = Stock::connect(&broker, "publisher", false);
    publisher.publish("jobs/resize", "photograph".into());
    publisher.expect_pubacks(1);
    broker.restart();
    let mut worker = Stock::connect(&broker, "worker", false);
    worker.subscribe("$saguin/queue/jobs");
    let job = worker.delivery();
    assert_eq!(label(&job, "saguin-attempt"), "1");
    // Unanswered it times out.
    let job = worker.delivery();
    assert_eq!(label(&job, "saguin-attempt"), "2");
    worker.answer(&job, "return");
    let job = worker.delivery();
    assert_eq!(label(&job, "saguin-attempt"), "3");
    worker.answer(&job, "return");
    worker.expect_pubacks(2);
    broker.restart();
    let mut reader = Stock::connect(&broker, "reader", false);
    reader.subscribe("jobs/__dlq/#");
    let letter = reader.delivery();
    assert_eq!(letter.topic, "jobs/__dlq/resize");
    assert_eq!(letter.payload, "photograph");
    assert_eq!(label(&letter, "saguin-dlq-reason"), "attempts_exhausted");
    assert_eq!(label(&letter, "saguin-dlq-attempts"), "3");
}

#[test]
fn current_values_are_there_after_a_kill() {
    let mut broker = Broker::start();
    let mut publisher = Stock::connect(&broker, "publisher", false);
    publisher.publish("state/lamp", "off".into());
    publisher.publish("state/lamp", "on".into());
    publisher.expect_pubacks(2);
    broker.restart();
    let mut subscriber = Stock::connect(&broker, "subscriber", false);
    subscriber.subscribe("state/#");
    let value = subscriber.delivery();
    assert_eq!(value.payload, "on");
    assert!(value.retain);
}
