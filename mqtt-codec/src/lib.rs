//! MQTT packets.
