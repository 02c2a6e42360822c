//! Arrays in the layouts that every reader of Arrow knows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, StructArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

use super::convert::{flattened, unpacked};

/// The same values without dictionaries, runs and views, at any depth. Lists become lists with offsets of 32 bits.
///
/// # Errors
/// More elements than such offsets count, or an array that Arrow cannot take apart.
pub fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let array = unpacked(array)?;
    match array.data_type() {
        DataType::BinaryView => cast(&array, &DataType::Binary),
        DataType::Utf8View => cast(&array, &DataType::Utf8),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => {
            let (offsets, elements) = flattened(&array)?;
            let elements = plain(&elements)?;
            let nulls = array.nulls().cloned();
            let list = ListArray::try_new(retyped(item, &elements), offsets, elements, nulls)?;
            Ok(Arc::new(list))
        }
        DataType::Struct(_) => Ok(Arc::new(plain_struct(array.as_struct())?)),
        DataType::Map(entries, ordered) => {
            let map = array.as_map();
            let plain: ArrayRef = Arc::new(plain_struct(map.entries())?);
            let (entries, offsets) = (retyped(entries, &plain), map.offsets().clone());
            let nulls = map.nulls().cloned();
            let map = MapArray::try_new(entries, offsets, plain.as_struct().clone(), nulls, *ordered)?;
            Ok(Arc::new(map))
        }
        _ => Ok(array),
    }
}

fn plain_struct(array: &StructArray) -> Result<StructArray, ArrowError> {
    let children = array.columns().iter().map(plain).collect::<Result<Vec<_>, _>>()?;
    let fields = array.fields().iter().zip(&children);
    let fields: Vec<FieldRef> = fields.map(|(field, child)| retyped(field, child)).collect();
    let nulls = array.nulls().cloned();
    StructArray::try_new_with_length(fields.into(), children, nulls, array.len())
}

/// The field for the plain array, whose NULLs stood in a dictionary or in runs before.
fn retyped(field: &FieldRef, array: &ArrayRef) -> FieldRef {
    let nullable = field.is_nullable() || array.null_count() > 0;
    let field = Field::clone(field).with_nullable(nullable);
    Arc::new(field.with_data_type(array.data_type().clone()))
}
