#!/usr/bin/env python3
"""A tour of the broker with paho-mqtt 2 (pip install paho-mqtt).

Against a broker that runs examples/quickstart.yaml:

    target/release/saguin --config examples/quickstart.yaml &
    examples/tour.py

or against one it starts itself, on a free port and a directory it removes again, and kills with
SIGKILL between the steps:

    examples/tour.py --broker target/release/saguin

What a step shows is compared with what has to be there: exit code 0 is all of it.
"""

import argparse
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import uuid

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PATIENCE = 60  # seconds until a step that shows nothing has failed
HERE = pathlib.Path(__file__).resolve().parent
RUN = "tour-" + uuid.uuid4().hex[:8]  # so that one run does not see another's records


def say(text):
    print(f"\n== {text}", flush=True)


def expect(found, wanted, what):
    if found != wanted:
        sys.exit(f"NOT AS IT SHOULD BE: {what} is {found!r} and not {wanted!r}")


class Broker:
    """The broker the tour talks to, and kills if it is its own."""

    def __init__(self, host, port, binary=None):
        self.host, self.port, self.binary = host, port, binary
        self.process = self.directory = None
        if binary:
            self.directory = tempfile.TemporaryDirectory()
            self.start()

    def start(self):
        path = pathlib.Path(self.directory.name)
        yaml = (HERE / "quickstart.yaml").read_text()
        yaml = yaml.replace("/tmp/saguin-quickstart", str(path / "log"))
        yaml = yaml.replace("127.0.0.1:1883", "127.0.0.1:0")
        (path / "saguin.yaml").write_text(yaml)
        self.process = subprocess.Popen(
            [self.binary, "--config", str(path / "saguin.yaml")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                return
        sys.exit("the broker did not start")

    def crash(self):
        if self.process is None:
            return
        print(f"   kill -9 {self.process.pid}, and start again")
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.start()

    def close(self):
        if self.process is None:
            return
        if sys.exc_info()[0] is None:
            self.process.send_signal(signal.SIGTERM)
            expect(self.process.wait(PATIENCE), 0, "the exit code of a stop")
        else:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.directory.cleanup()


class Peer:
    """One connection. Whatever comes is put in a queue.

    A queue's offers arrive under the topic of the job, which no subscription of the client names:
    a client that sorts messages by topic (message_callback_add) needs a catch-all, and on_message
    is one.
    """

    def __init__(self, broker, client_id, durable=False, manual_ack=False):
        self.messages = queue.Queue()
        self.granted = queue.Queue()
        self.ended = queue.Queue()
        self.connacks = queue.Queue()
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTv5,
            manual_ack=manual_ack,
            # A broker that is started again listens elsewhere here.
            reconnect_on_failure=False,
        )
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        self.client.on_subscribe = lambda _c, _d, _mid, codes, _p: self.granted.put(codes)
        self.client.on_unsubscribe = lambda _c, _d, _mid, codes, _p: self.ended.put(codes)
        self.client.on_connect = lambda _c, _d, flags, code, _p: self.connacks.put((flags, code))
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600 if durable else 0
        self.client.connect(
            broker.host, broker.port, clean_start=not durable, properties=properties
        )
        self.client.loop_start()
        flags, code = self.connacks.get(timeout=PATIENCE)
        if code.is_failure:
            sys.exit(f"refused: {code}")
        self.session_present = flags.session_present

    def subscribe(self, topic_filter):
        self.client.subscribe(topic_filter, qos=1)
        for code in self.granted.get(timeout=PATIENCE):
            if code.is_failure:
                sys.exit(f"{topic_filter} is not granted: {code}")

    def unsubscribe(self, topic_filter):
        self.client.unsubscribe(topic_filter)
        self.ended.get(timeout=PATIENCE)

    def publish(self, topic, payload, properties=None):
        return self.client.publish(topic, payload, qos=1, properties=properties)

    def publish_stored(self, topic, payload, properties=None):
        """Publishes and waits for the PUBACK: from then on it is on the disk."""
        self.publish(topic, payload, properties).wait_for_publish(PATIENCE)

    def take(self):
        return self.messages.get(timeout=PATIENCE)

    def acknowledge(self, message):
        self.client.ack(message.mid, message.qos)

    def answer(self, job, word):
        """`ack` or `return`, on the job's Response Topic and with its Correlation Data."""
        properties = Properties(PacketTypes.PUBLISH)
        properties.CorrelationData = job.properties.CorrelationData
        self.publish_stored(job.properties.ResponseTopic, word, properties)

    def leave(self):
        self.client.disconnect()
        self.client.loop_stop()

    def lose(self):
        """Goes without a word, as a process that is killed."""
        self.client.loop_stop()
        sock = self.client.socket()
        if sock is not None:
            sock.close()


def labels(message):
    return dict(getattr(message.properties, "UserProperty", []))


def show(message):
    print(f"   {message.topic}  {message.payload.decode()}")
    for key, value in labels(message).items():
        print(f"      {key}: {value}")


def take_job(worker, attempt):
    job = worker.take()
    if not job.topic.startswith(f"jobs/{RUN}/"):
        sys.exit(f"the queue holds a job of somebody else's, {job.topic}: start with an empty one")
    show(job)
    expect(labels(job)["saguin-attempt"], attempt, "the attempt")
    return job


def jobs(broker):
    say("A job is published")
    publisher = Peer(broker, f"{RUN}-publisher")
    publisher.publish_stored(f"jobs/{RUN}/resize", "the photograph")
    publisher.leave()
    broker.crash()

    say("A worker takes it and says nothing; after 5 s (visibility_timeout) it comes again")
    worker = Peer(broker, f"{RUN}-worker")
    worker.subscribe("$saguin/queue/jobs")
    take_job(worker, "1")
    job = take_job(worker, "2")

    say("The worker wants no more, and returns it; what it has spent survives")
    # A job that is held stays held. Subscribed, it would be offered the job again at once.
    worker.unsubscribe("$saguin/queue/jobs")
    worker.answer(job, "return")
    broker.crash()
    worker.leave()
    worker = Peer(broker, f"{RUN}-worker")
    worker.subscribe("$saguin/queue/jobs")
    job = take_job(worker, "3")

    say("Returned for the third time it is dead-lettered")
    worker.answer(job, "return")
    broker.crash()
    worker.leave()
    reader = Peer(broker, f"{RUN}-reader")
    reader.subscribe(f"jobs/__dlq/{RUN}/#")
    letter = reader.take()
    show(letter)
    expect(letter.payload, b"the photograph", "the dead letter")
    found = labels(letter)
    expect(found["saguin-dlq-reason"], "attempts_exhausted", "the reason")
    expect(found["saguin-dlq-attempts"], "3", "the attempts")
    expect(found["saguin-dlq-channel"], "jobs", "the queue")
    for key in ("offset", "first", "last", "at"):
        expect(f"saguin-dlq-{key}" in found, True, f"saguin-dlq-{key} there")
    reader.leave()

    say("Another job is taken and done")
    worker = Peer(broker, f"{RUN}-worker")
    worker.subscribe("$saguin/queue/jobs")
    worker.publish_stored(f"jobs/{RUN}/easy", "a small one")
    worker.answer(take_job(worker, "1"), "ack")
    worker.publish_stored(f"jobs/{RUN}/next", "the next one")
    job = take_job(worker, "1")
    expect(job.topic, f"jobs/{RUN}/next", "what follows it")
    worker.answer(job, "ack")
    worker.leave()


def events(broker):
    say("1,000 events are published")
    publisher = Peer(broker, f"{RUN}-publisher")
    sent = [publisher.publish(f"events/{RUN}", str(number)) for number in range(1, 1001)]
    for message in sent:
        message.wait_for_publish(PATIENCE)
    publisher.leave()
    broker.crash()

    say("A new consumer replays all of them, in order")
    new = Peer(broker, f"{RUN}-new")
    new.subscribe(f"events/{RUN}/#")
    replayed = [int(new.take().payload) for _ in range(1000)]
    expect(replayed, list(range(1, 1001)), "the replay")
    print(f"   {len(replayed)} events, first {replayed[0]}, last {replayed[-1]}")
    new.leave()

    say("A durable consumer acknowledges 400 and goes; it comes back where it stopped")
    first = Peer(broker, f"{RUN}-durable", durable=True, manual_ack=True)
    first.subscribe(f"events/{RUN}/#")
    for _ in range(400):
        first.acknowledge(first.take())
    # Packets are read in order: once this is answered, so are the 400 acknowledgements.
    first.publish_stored(f"talk/{RUN}", "")
    first.leave()
    second = Peer(broker, f"{RUN}-durable", durable=True, manual_ack=True)
    expect(second.session_present, True, "Session Present")
    for number in range(401, 701):
        event = second.take()
        expect(int(event.payload), number, "the event")
        second.acknowledge(event)
    print("   401 to 700 follow 400")

    if broker.process is None:
        second.leave()
        return
    say("Killed in the middle: the stored position may lag, is never ahead, and leaves no gap")
    second.publish_stored(f"talk/{RUN}", "")
    broker.crash()
    second.lose()
    third = Peer(broker, f"{RUN}-durable", durable=True, manual_ack=True)
    expect(third.session_present, True, "Session Present")
    went_on = int(third.take().payload)
    expect(went_on <= 701, True, f"going on at {went_on}, at most 701,")
    for number in range(went_on + 1, 1001):
        expect(int(third.take().payload), number, "the event")
    print(f"   {went_on} to 1000")
    third.leave()


def state(broker):
    say("A current value is set twice")
    publisher = Peer(broker, f"{RUN}-publisher")
    topic = f"state/{RUN}/lamp"
    publisher.publish_stored(topic, "off")
    publisher.publish_stored(topic, "on")
    publisher.leave()
    broker.crash()

    say("A subscriber gets the current value, then a change, then the deletion")
    subscriber = Peer(broker, f"{RUN}-subscriber")
    subscriber.subscribe(f"state/{RUN}/#")
    for payload, retain in (("on", True), ("dimmed", False), ("", False)):
        if payload != "on":
            subscriber.publish_stored(topic, payload)
        value = subscriber.take()
        print(f"   {value.topic} is {value.payload.decode()!r}, RETAIN {value.retain}")
        expect((value.payload.decode(), value.retain), (payload, retain), "the value")
    subscriber.leave()


def main():
    parser = argparse.ArgumentParser(description="A tour of the broker.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--broker", help="start this binary, and kill it between the steps")
    arguments = parser.parse_args()
    broker = Broker(arguments.host, arguments.port, arguments.broker)
    try:
        jobs(broker)
        events(broker)
        state(broker)
    finally:
        broker.close()
    print("\nAll of it as it should be.")


if __name__ == "__main__":
    main()
