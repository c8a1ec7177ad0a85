//! Recovery.
