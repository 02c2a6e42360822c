//! Types as they are written: in SQL with their parameters, in REST by their older names.

use super::{Column, Kind, Mode};

impl Column {
    /// The type as SQL declares it: `ARRAY<STRUCT<a INT64, b STRING(3)>>`.
    pub(crate) fn sql_type(&self) -> String {
        let element = self.kind.sql_type();
        match self.mode {
            Mode::Repeated => format!("ARRAY<{element}>"),
            Mode::Nullable | Mode::Required => element,
        }
    }
}

impl Kind {
    /// The type of one value as SQL declares it.
    pub(crate) fn sql_type(&self) -> String {
        let name = self.sql_name();
        match self {
            Self::Numeric { precision, scale } | Self::BigNumeric { precision, scale } => {
                match (precision, scale) {
                    (Some(precision), Some(scale)) => format!("{name}({precision}, {scale})"),
                    (Some(precision), None) => format!("{name}({precision})"),
                    (None, _) => name.to_owned(),
                }
            }
            Self::String {
                max_length: Some(max),
            }
            | Self::Bytes {
                max_length: Some(max),
            } => {
                format!("{name}({max})")
            }
            Self::TimestampPicoseconds => format!("{name}(12)"),
            Self::Range(element) => format!("{name}<{}>", Self::from(*element).sql_name()),
            Self::Struct(columns) => {
                let field = |column: &Column| format!("{} {}", column.name, column.sql_type());
                let fields: Vec<String> = columns.iter().map(field).collect();
                format!("{name}<{}>", fields.join(", "))
            }
            _ => name.to_owned(),
        }
    }

    /// REST's name of the type, without parameters.
    pub(crate) fn rest_name(&self) -> &'static str {
        match self {
            Self::Bool => "BOOLEAN",
            Self::Int64 => "INTEGER",
            Self::Float64 => "FLOAT",
            Self::Struct(_) => "RECORD",
            other => other.sql_name(),
        }
    }
}

impl Mode {
    /// REST's name of the mode.
    pub(crate) fn rest_name(self) -> &'static str {
        match self {
            Self::Nullable => "NULLABLE",
            Self::Required => "REQUIRED",
            Self::Repeated => "REPEATED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RangeElement;
    use super::*;

    #[test]
    fn types_are_written_with_their_parameters() {
        let fields = vec![
            Column::new("a", Kind::Int64, Mode::Required),
            Column::new("b", Kind::String { max_length: Some(3) }, Mode::Repeated),
        ];
        let digits = |precision, scale| Kind::Numeric { precision, scale };
        for (kind, mode, want) in [
            (
                Kind::Struct(fields),
                Mode::Repeated,
                "ARRAY<STRUCT<a INT64, b ARRAY<STRING(3)>>>",
            ),
            (digits(None, None), Mode::Nullable, "NUMERIC"),
            (digits(Some(10), None), Mode::Nullable, "NUMERIC(10)"),
            (digits(Some(10), Some(2)), Mode::Required, "NUMERIC(10, 2)"),
            (Kind::Bytes { max_length: None }, Mode::Nullable, "BYTES"),
            (Kind::TimestampPicoseconds, Mode::Nullable, "TIMESTAMP(12)"),
            (
                Kind::Range(RangeElement::Date),
                Mode::Repeated,
                "ARRAY<RANGE<DATE>>",
            ),
        ] {
            assert_eq!(Column::new("c", kind, mode).sql_type(), want);
        }
    }
}
