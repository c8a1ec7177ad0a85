//! The MQTT front end: sockets, framing, keepalive.
