//! Messages of mistakes.
