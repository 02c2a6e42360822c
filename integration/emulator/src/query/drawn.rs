//! Functions whose results are drawn: from the emulator's own bits, so that the same seed gives the same answers.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, Float64Array, StringArray};
use arrow_schema::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::defaults::RandomBits;

/// The bits of one statement, cheap to clone.
#[derive(Clone)]
pub(super) struct Draw(Arc<Mutex<RandomBits>>);

impl Draw {
    pub(super) fn new(bits: RandomBits) -> Self {
        Self(Arc::new(Mutex::new(bits)))
    }

    /// Lets something be drawn.
    pub(super) fn with<T>(&self, draw: impl FnOnce(&mut RandomBits) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draw")
    }
}

/// `GENERATE_UUID` and `RAND`.
pub(super) fn functions(draw: &Draw) -> [ScalarUDF; 2] {
    [What::Uuid, What::Fraction].map(|what| {
        ScalarUDF::from(Drawn {
            what,
            draw: draw.clone(),
            signature: Signature::nullary(Volatility::Volatile),
        })
    })
}

#[derive(Debug)]
struct Drawn {
    what: What,
    draw: Draw,
    signature: Signature,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Uuid,
    Fraction,
}

impl ScalarUDFImpl for Drawn {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        match self.what {
            What::Uuid => "generate_uuid",
            What::Fraction => "rand",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            What::Uuid => DataType::Utf8,
            What::Fraction => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = 0..args.number_rows;
        let array: ArrayRef = self.draw.with(|bits| match self.what {
            What::Uuid => Arc::new(rows.map(|_| Some(bits.uuid())).collect::<StringArray>()) as ArrayRef,
            What::Fraction => Arc::new(rows.map(|_| Some(bits.fraction())).collect::<Float64Array>()),
        });
        Ok(ColumnarValue::Array(array))
    }
}
