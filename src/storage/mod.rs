//! The storage contract and its implementations.
