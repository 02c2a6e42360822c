//! Parts of a world: shared until they change, with a print that is taken once per change.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

/// 128 bits of a value: two values with the same print are taken for the same. With ten million states the chance that
/// two of them meet is below 10^-24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Print(u128);

impl Print {
    pub(crate) fn of(value: &impl Hash) -> Self {
        let mut printer = Printer::default();
        value.hash(&mut printer);
        Self(printer.state ^ (printer.state >> 59))
    }
}

#[derive(Debug)]
struct Printer {
    state: u128,
}

impl Default for Printer {
    fn default() -> Self {
        Self {
            state: 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d,
        }
    }
}

impl Printer {
    fn take(&mut self, word: u64) {
        // Multiplication carries upwards only; the shift brings the high half down again.
        let mixed = (self.state ^ u128::from(word)).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
        self.state = mixed ^ (mixed >> 64);
    }
}

impl Hasher for Printer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.take(u64::from_le_bytes(word));
        }
        self.take(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.take(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.take(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.take(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.take(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.take(value as u64);
    }

    fn finish(&self) -> u64 {
        self.state as u64
    }
}

#[derive(Debug)]
pub(crate) struct Part<T> {
    value: Rc<T>,
    print: Print,
}

impl<T: Clone + Hash> Part<T> {
    pub(crate) fn new(value: T) -> Self {
        let print = Print::of(&value);
        Self {
            value: Rc::new(value),
            print,
        }
    }

    pub(crate) fn edit<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(Rc::make_mut(&mut self.value));
        self.print = Print::of(&*self.value);
        changed
    }

    /// Takes the value out, to be put back by [`Self::put`].
    pub(crate) fn take(&mut self) -> T {
        (*self.value).clone()
    }

    pub(crate) fn put(&mut self, value: T) {
        *self = Self::new(value);
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self {
            value: Rc::clone(&self.value),
            print: self.print,
        }
    }
}

impl<T> Hash for Part<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
