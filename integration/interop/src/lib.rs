//! Google's own clients against the emulator: what they say is compared with a transcript written by hand.
