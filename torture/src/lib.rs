//! Rigs that try to break the promises of the broker and its log.
