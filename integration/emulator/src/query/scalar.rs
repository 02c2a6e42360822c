//! Functions that BigQuery has and DataFusion has not.

use std::any::Any;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Decimal256Type, Float64Type};
use arrow_array::{Array, ArrayRef, Decimal128Array, Decimal256Array, Float64Array, StringArray};
use arrow_buffer::i256;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serde_json::Value;

use crate::query::json_text::{self, path};
use crate::query::types::TAG;

/// All of them, under the names that [`super::functions`] gives them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let text = |args| vec![DataType::Utf8; args];
    let exact = |types| Signature::exact(types, VOLATILE);
    let mark = |mark| Returns::Marked(mark);
    [
        Scalar::new(
            "divide",
            Signature::user_defined(VOLATILE),
            Returns::Quotient,
            divide,
        ),
        Scalar::new(
            "to_json_string",
            Signature::any(1, VOLATILE),
            mark("STRING"),
            to_json_string,
        ),
        Scalar::new("parse_json", exact(text(1)), mark("JSON"), parse_json),
        Scalar::new("json_value", exact(text(2)), mark("STRING"), json_value),
        Scalar::new("json_query", exact(text(2)), mark("JSON"), json_query),
        Scalar::new("st_geogfromtext", exact(text(1)), mark("GEOGRAPHY"), same),
        Scalar::new("st_astext", exact(text(1)), mark("STRING"), same),
        Scalar::new(
            "st_geogpoint",
            exact(vec![DataType::Float64; 2]),
            mark("GEOGRAPHY"),
            point,
        ),
        Scalar::new("pow", exact(vec![DataType::Float64; 2]), Returns::Float, power),
        Scalar::new("round", exact(vec![DataType::Float64]), Returns::Float, |args| {
            rounded(args, f64::round)
        }),
        Scalar::new("floor", exact(vec![DataType::Float64]), Returns::Float, |args| {
            rounded(args, f64::floor)
        }),
        Scalar::new("ceil", exact(vec![DataType::Float64]), Returns::Float, |args| {
            rounded(args, f64::ceil)
        }),
    ]
    .map(ScalarUDF::from)
    .into()
}

/// Not true of any, but what is computed in advance loses its mark.
pub(super) const VOLATILE: Volatility = Volatility::Volatile;

#[derive(Debug)]
pub(super) struct Scalar {
    name: &'static str,
    signature: Signature,
    returns: Returns,
    run: fn(&[Argument]) -> Result<ArrayRef>,
}

/// What a function returns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Returns {
    Float,
    Integer,
    /// What that argument is, its mark included.
    Of(usize),
    /// A number of the wider of its arguments' types.
    Quotient,
    /// Text that is a value of that type.
    Marked(&'static str),
}

/// An argument, with what its type does not say.
pub(super) struct Argument {
    pub(super) array: ArrayRef,
    field: FieldRef,
}

impl Scalar {
    pub(super) fn new(
        name: &'static str,
        signature: Signature,
        returns: Returns,
        run: fn(&[Argument]) -> Result<ArrayRef>,
    ) -> Self {
        Self {
            name,
            signature,
            returns,
            run,
        }
    }
}

impl ScalarUDFImpl for Scalar {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(match self.returns {
            Returns::Float => DataType::Float64,
            Returns::Integer => DataType::Int64,
            Returns::Of(at) => args.get(at).cloned().unwrap_or(DataType::Null),
            Returns::Quotient => args.first().cloned().unwrap_or(DataType::Float64),
            Returns::Marked(_) => DataType::Utf8,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let field = Field::new(self.name, self.return_type(&types)?, true);
        Ok(Arc::new(match self.returns {
            Returns::Marked(mark @ ("JSON" | "GEOGRAPHY")) => {
                field.with_metadata([(TAG.to_owned(), mark.to_owned())].into())
            }
            _ => field,
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let argument = |(value, field): (ColumnarValue, &FieldRef)| {
            Ok(Argument {
                array: value.into_array(rows)?,
                field: Arc::clone(field),
            })
        };
        let arguments: Result<Vec<Argument>> = args
            .args
            .into_iter()
            .zip(&args.arg_fields)
            .map(argument)
            .collect();
        (self.run)(&arguments?).map(ColumnarValue::Array)
    }

    /// Of `divide`: FLOAT64 unless both are decimals, or one and an integer.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_decimal =
            |kind: &DataType| matches!(kind, DataType::Decimal128(..) | DataType::Decimal256(..));
        let is_exact = |kind: &DataType| kind.is_integer() || is_decimal(kind) || kind.is_null();
        let kind = if !types.iter().all(is_exact) || !types.iter().any(is_decimal) {
            DataType::Float64
        } else if types.iter().any(|kind| matches!(kind, DataType::Decimal256(..))) {
            DataType::Decimal256(76, 38)
        } else {
            DataType::Decimal128(38, 9)
        };
        Ok(vec![kind; types.len()])
    }
}

fn divide(args: &[Argument]) -> Result<ArrayRef> {
    let [left, right] = args else {
        return exec_err!("divide takes two arguments");
    };
    let by_zero = || DataFusionError::Execution("division by zero".to_owned());
    let overflow = || DataFusionError::Execution("numeric overflow".to_owned());
    match left.array.data_type() {
        DataType::Decimal128(..) => {
            let ten = i256::from_i128(1_000_000_000);
            let pairs = left.array.as_primitive::<Decimal128Type>().iter();
            let pairs = pairs.zip(right.array.as_primitive::<Decimal128Type>());
            let quotient = |(left, right): (Option<i128>, Option<i128>)| match (left, right) {
                (Some(left), Some(right)) => {
                    let quotient = quotient(i256::from_i128(left), i256::from_i128(right), ten, by_zero)?;
                    quotient.and_then(i256::to_i128).map(Some).ok_or_else(overflow)
                }
                _ => Ok(None),
            };
            let array: Decimal128Array = pairs.map(quotient).collect::<Result<_>>()?;
            Ok(Arc::new(array.with_precision_and_scale(38, 9)?))
        }
        DataType::Decimal256(..) => {
            let ten = i256::from_i128(10).wrapping_pow(38);
            let pairs = left.array.as_primitive::<Decimal256Type>().iter();
            let pairs = pairs.zip(right.array.as_primitive::<Decimal256Type>());
            let quotient = |(left, right): (Option<i256>, Option<i256>)| match (left, right) {
                (Some(left), Some(right)) => {
                    let quotient = quotient(left, right, ten, by_zero)?;
                    quotient.map(Some).ok_or_else(overflow)
                }
                _ => Ok(None),
            };
            let array: Decimal256Array = pairs.map(quotient).collect::<Result<_>>()?;
            Ok(Arc::new(array.with_precision_and_scale(76, 38)?))
        }
        _ => {
            let pairs = left.array.as_primitive::<Float64Type>().iter();
            let pairs = pairs.zip(right.array.as_primitive::<Float64Type>());
            let quotient = |(left, right): (Option<f64>, Option<f64>)| match (left, right) {
                (Some(_), Some(0.0)) => Err(by_zero()),
                (Some(left), Some(right)) => Ok(Some(left / right)),
                _ => Ok(None),
            };
            Ok(Arc::new(pairs.map(quotient).collect::<Result<Float64Array>>()?))
        }
    }
}

/// Of two decimals of one scale, rounded half away from zero; `None` beyond 256 bits.
fn quotient(
    left: i256,
    right: i256,
    scale: i256,
    by_zero: impl FnOnce() -> DataFusionError,
) -> Result<Option<i256>> {
    if right == i256::ZERO {
        return Err(by_zero());
    }
    let Some(scaled) = left.checked_mul(scale) else {
        return Ok(None);
    };
    let (whole, rest) = (scaled.wrapping_div(right), scaled.wrapping_rem(right));
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2));
    if twice.is_some_and(|twice| twice < right.wrapping_abs()) {
        return Ok(Some(whole));
    }
    let away = if scaled.is_negative() == right.is_negative() {
        i256::ONE
    } else {
        i256::MINUS_ONE
    };
    Ok(whole.checked_add(away))
}

fn rounded(args: &[Argument], round: fn(f64) -> f64) -> Result<ArrayRef> {
    match args {
        [value] => {
            let values = value.array.as_primitive::<Float64Type>();
            Ok(Arc::new(values.unary::<_, Float64Type>(round)))
        }
        _ => exec_err!("it takes one argument"),
    }
}

fn power(args: &[Argument]) -> Result<ArrayRef> {
    let [base, exponent] = args else {
        return exec_err!("POW takes two arguments");
    };
    let pairs = base.array.as_primitive::<Float64Type>().iter();
    let pairs = pairs.zip(exponent.array.as_primitive::<Float64Type>());
    let power = |(base, exponent): (Option<f64>, Option<f64>)| Some(base?.powf(exponent?));
    Ok(Arc::new(pairs.map(power).collect::<Float64Array>()))
}

fn to_json_string(args: &[Argument]) -> Result<ArrayRef> {
    let [value] = args else {
        return exec_err!("to_json_string takes one argument");
    };
    let text = |row| json_text::value(&value.array, &value.field, row).to_string();
    let texts: StringArray = (0..value.array.len()).map(|row| Some(text(row))).collect();
    Ok(Arc::new(texts))
}

fn parse_json(args: &[Argument]) -> Result<ArrayRef> {
    each_text(args, |text, _| {
        let parsed: std::result::Result<Value, _> = serde_json::from_str(text);
        match parsed {
            Ok(value) => Ok(Some(value.to_string())),
            Err(_) => exec_err!("Invalid input to PARSE_JSON: it is no JSON"),
        }
    })
}

/// A scalar at a path, as text.
fn json_value(args: &[Argument]) -> Result<ArrayRef> {
    each_text(args, |text, steps| {
        let value = found(text, steps)?;
        Ok(match value {
            Some(Value::String(text)) => Some(text),
            Some(Value::Bool(_) | Value::Number(_)) => value.map(|value| value.to_string()),
            _ => None,
        })
    })
}

/// What stands at a path, as JSON.
fn json_query(args: &[Argument]) -> Result<ArrayRef> {
    each_text(args, |text, steps| {
        Ok(found(text, steps)?.map(|value| value.to_string()))
    })
}

fn found(text: &str, steps: &str) -> Result<Option<Value>> {
    let Some(steps) = path::read(steps) else {
        return exec_err!("Invalid JSONPath");
    };
    let value: Option<Value> = serde_json::from_str(text).ok();
    Ok(value.and_then(|value| path::find(&value, &steps).cloned()))
}

fn same(args: &[Argument]) -> Result<ArrayRef> {
    each_text(args, |text, _| Ok(Some(text.to_owned())))
}

/// For each row the first argument, with the second one if there is any.
fn each_text(args: &[Argument], run: impl Fn(&str, &str) -> Result<Option<String>>) -> Result<ArrayRef> {
    let Some(first) = args.first() else {
        return exec_err!("it takes an argument");
    };
    let first = first.array.as_string::<i32>();
    let second = args.get(1).map(|second| second.array.as_string::<i32>());
    let row = |row: usize| {
        let other = match second {
            Some(second) if second.is_null(row) => return Ok(None),
            Some(second) => second.value(row),
            None => "",
        };
        if first.is_null(row) {
            return Ok(None);
        }
        run(first.value(row), other)
    };
    let texts = (0..first.len()).map(row).collect::<Result<StringArray>>()?;
    Ok(Arc::new(texts))
}

fn point(args: &[Argument]) -> Result<ArrayRef> {
    let [longitude, latitude] = args else {
        return exec_err!("st_geogpoint takes two arguments");
    };
    let pairs = longitude.array.as_primitive::<Float64Type>().iter();
    let pairs = pairs.zip(latitude.array.as_primitive::<Float64Type>());
    let point = |(x, y): (Option<f64>, Option<f64>)| Some(format!("POINT({} {})", x?, y?));
    Ok(Arc::new(pairs.map(point).collect::<StringArray>()))
}
