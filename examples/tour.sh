#!/bin/sh
# A tour of the broker with mosquitto_pub and mosquitto_sub, across `kill -9`.
#
#   cargo build --release && examples/tour.sh
#
# It starts a broker of its own on a free port and a directory it removes again. SAGUIN names
# another binary. What a step shows is compared with what has to be there: exit code 0 is all of it.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
saguin=${SAGUIN:-$root/target/release/saguin}
for tool in "$saguin" mosquitto_pub mosquitto_sub; do
    command -v "$tool" >/dev/null || { echo "this tour needs $tool" >&2; exit 1; }
done

work=$(mktemp -d)
broker=
cleanup() {
    [ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

say() { printf '\n== %s\n' "$*"; }
fail() { echo "NOT AS IT SHOULD BE: $*" >&2; exit 1; }

# The example's own configuration, on a free port and in our directory.
sed -e "s|/tmp/saguin-quickstart|$work/log|" -e 's|127.0.0.1:1883|127.0.0.1:0|' \
    "$root/examples/quickstart.yaml" >"$work/saguin.yaml"

start() {
    : >"$work/out"
    "$saguin" --config "$work/saguin.yaml" >"$work/out" 2>&1 &
    broker=$!
    # It says where it listens as soon as it does.
    while ! grep -q '^listening on ' "$work/out"; do
        kill -0 "$broker" 2>/dev/null || { cat "$work/out" >&2; fail "the broker did not start"; }
        sleep 0.05
    done
    port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$work/out")
    echo "   broker: process $broker, port $port"
}

crash() {
    echo "   kill -9 $broker, and start again"
    kill -9 "$broker"
    wait "$broker" 2>/dev/null || true
    start
}

publish() { mosquitto_pub -V 5 -h 127.0.0.1 -p "$port" -q 1 "$@"; }
subscribe() { mosquitto_sub -V 5 -h 127.0.0.1 -p "$port" -q 1 -W 60 "$@"; }
expect() { grep -q "$2" "$1" || { cat "$1" >&2; fail "no $2"; }; }

say "The broker starts"
start

say "A job is published, and the broker is killed"
publish -t jobs/resize/42 -m 'the photograph'
crash

say "A worker takes the job and says nothing; after 5 s (visibility_timeout) it comes again"
# Leaving without an answer gives the second attempt back. The answers themselves, ack and return,
# have to come from the connection that holds the job: see tour.py.
subscribe -t '$saguin/queue/jobs' -C 2 -F '   %t  %p  | %P' | tee "$work/took"
expect "$work/took" 'saguin-attempt:1'
expect "$work/took" 'saguin-attempt:2'

say "Another takes it for the third time, the last one allowed, and leaves as well"
subscribe -t '$saguin/queue/jobs' -C 1 -F '   %t  %p  | %P' | tee "$work/took"
expect "$work/took" 'saguin-attempt:3'

say "It is in the dead letters, with where it came from and why, and stays there"
dead_letter() { subscribe -t 'jobs/__dlq/#' -C 1 -F '   %t  %p  | %P'; }
dead_letter | tee "$work/letter"
crash
dead_letter | cmp - "$work/letter" || fail "the dead letter changed"
for label in channel:jobs offset: attempts:3 first: last: at: reason:attempts_exhausted; do
    expect "$work/letter" "saguin-dlq-$label"
done

say "1,000 events are published, and the broker is killed"
seq 1 1000 >"$work/events"
publish -l -t events/line <"$work/events"
crash

say "A new consumer replays all of them, in order"
subscribe -t 'events/#' -C 1000 -F '%p' >"$work/replayed"
cmp "$work/events" "$work/replayed" || fail "the replay differs"
echo "   $(wc -l <"$work/replayed") events, first $(head -1 "$work/replayed"), last $(tail -1 "$work/replayed")"

say "A durable consumer takes 400, the broker is killed, and it goes on where it stopped"
# One at a time, so that it acknowledges no more than it prints.
durable() { subscribe -i tour-durable -c -x 3600 -D connect receive-maximum 1 -t 'events/#' "$@"; }
durable -C 400 -F '%p' >"$work/first"
publish -t talk/barrier -m ''
crash
durable -C 600 -F '%p' >"$work/second"
echo "   stopped after $(tail -1 "$work/first"), went on at $(head -1 "$work/second")"
[ "$(head -1 "$work/second")" -le 401 ] || fail "the stored position was ahead"
seq "$(head -1 "$work/second")" 1000 | head -600 | cmp - "$work/second" || fail "there is a gap"

say "A current value is set twice, and the broker is killed"
publish -t state/lamp -m off
publish -t state/lamp -m on
crash
subscribe -t 'state/#' -C 1 -F '   %t is %p (retain %r)' | tee "$work/state"
expect "$work/state" 'state/lamp is on (retain 1)'

say "The broker is asked to stop (SIGTERM)"
kill -TERM "$broker"
wait "$broker" || fail "exit code $?"
broker=
echo "   exit code 0"

printf '\nAll of it as it should be.\n'
