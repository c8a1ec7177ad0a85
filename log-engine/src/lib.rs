//! The log engine.
