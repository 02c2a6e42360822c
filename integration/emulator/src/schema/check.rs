//! What BigQuery asks of a schema before it creates a table of it.

use super::{Column, Kind, Schema};
use crate::defaults::DefaultValue;

/// Nesting that BigQuery allows for STRUCT columns.
const DEEPEST: usize = 15;
/// Columns and nested fields that BigQuery allows in one table.
const MOST_FIELDS: usize = 10_000;
/// Length of a name, in characters.
const LONGEST_NAME: usize = 300;
/// Prefixes of names that BigQuery keeps for itself, and how it lists them: those of reports.md 77, and those that
/// D:schemas adds.
const RESERVED: [(&[&str], &str); 2] = [
    (
        &[
            "_PARTITION",
            "_TABLE_",
            "_FILE_",
            "_ROW_TIMESTAMP",
            "__ROOT__",
            "_COLIDENTIFIER",
        ],
        "_PARTITION, _TABLE_, _FILE_, _ROW_TIMESTAMP, __ROOT__ and _COLIDENTIFIER",
    ),
    (
        &["_CHANGE_SEQUENCE_NUMBER", "_CHANGE_TYPE", "_CHANGE_TIMESTAMP"],
        "_CHANGE_SEQUENCE_NUMBER, _CHANGE_TYPE and _CHANGE_TIMESTAMP",
    ),
];
/// Characters that flexible column names do not have either.
const FORBIDDEN: &str = "!\"$()*,./;?@[\\]^`{}~";

/// A schema that BigQuery refuses; the text names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

impl Schema {
    /// Whether BigQuery would create a table with it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), SchemaError> {
        self.check_size()?;
        self.check_columns()
    }

    /// Whether it has too many columns.
    pub(crate) fn check_size(&self) -> Result<(), SchemaError> {
        let fields = count(&self.columns);
        if fields > MOST_FIELDS {
            return refuse(format!(
                "Too many total leaf fields: {fields}, max allowed field count: {MOST_FIELDS}"
            ));
        }
        Ok(())
    }

    /// Whether each of them is one.
    pub(crate) fn check_columns(&self) -> Result<(), SchemaError> {
        check_columns(&self.columns, "", 0)
    }
}

fn count(columns: &[Column]) -> usize {
    let inner = |column: &Column| match &column.kind {
        Kind::Struct(columns) => count(columns),
        _ => 0,
    };
    columns.iter().map(|column| 1 + inner(column)).sum()
}

fn check_columns(columns: &[Column], within: &str, depth: usize) -> Result<(), SchemaError> {
    let mut names = std::collections::HashSet::new();
    for column in columns {
        let path = path(within, &column.name);
        check_name(&column.name, &path)?;
        if !names.insert(column.name.to_lowercase()) {
            return refuse(format!("Duplicate field name: {path}"));
        }
        check_kind(&column.kind, &path, depth)?;
        check_default(column, within)?;
    }
    Ok(())
}

fn check_name(name: &str, path: &str) -> Result<(), SchemaError> {
    // A tab is white space, which flexible names may have (D:schemas).
    let forbidden = |c: char| (c.is_control() && c != '\t') || FORBIDDEN.contains(c);
    if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(forbidden) {
        let rule = "Fields must contain only letters, numbers, and underscores (or one of the characters \
                    that flexible column names allow), be at most 300 characters long, and not be empty";
        return refuse(format!("Invalid field name \"{path}\". {rule}."));
    }
    let upper = name.to_ascii_uppercase();
    let reserved = |prefixes: &&[&str]| prefixes.iter().any(|prefix| upper.starts_with(prefix));
    if let Some((_, list)) = RESERVED.iter().find(|(prefixes, _)| reserved(prefixes)) {
        let rule = "Field names are not allowed to start with the (case-insensitive) prefixes";
        return refuse(format!("Invalid field name \"{path}\". {rule} {list}"));
    }
    Ok(())
}

fn check_kind(kind: &Kind, path: &str, depth: usize) -> Result<(), SchemaError> {
    match kind {
        Kind::Numeric { precision, scale } => check_digits(*precision, *scale, 29, 9, path),
        Kind::BigNumeric { precision, scale } => check_digits(*precision, *scale, 38, 38, path),
        Kind::String {
            max_length: Some(max),
        }
        | Kind::Bytes {
            max_length: Some(max),
        } if *max < 1 => refuse(format!("Invalid maxLength for field {path}")),
        Kind::Struct(_) if depth == DEEPEST => refuse(format!(
            "Field {path} is nested too deep: the most is {DEEPEST} levels"
        )),
        Kind::Struct(columns) if columns.is_empty() => {
            refuse(format!("Field {path} is type RECORD but has no schema"))
        }
        Kind::Struct(columns) => check_columns(columns, path, depth + 1),
        _ => Ok(()),
    }
}

/// `NUMERIC(P, S)`: S up to `most_scale`, and at most `most_whole` digits before the point.
fn check_digits(
    precision: Option<u8>,
    scale: Option<u8>,
    most_whole: u8,
    most_scale: u8,
    path: &str,
) -> Result<(), SchemaError> {
    let good = match (precision, scale.unwrap_or(0)) {
        (None, _) => scale.is_none(),
        (Some(p), s) => s <= most_scale && p >= s.max(1) && p - s <= most_whole,
    };
    if good {
        return Ok(());
    }
    refuse(format!("Invalid precision or scale for field {path}"))
}

/// D:default-values: only whole columns have one, and it is a value of the column.
fn check_default(column: &Column, within: &str) -> Result<(), SchemaError> {
    if column.default_value_expression.is_some() && !within.is_empty() {
        let path = path(within, &column.name);
        return refuse(format!(
            "Field {path} is a field of a STRUCT and cannot have a default value; set that of the whole STRUCT"
        ));
    }
    DefaultValue::of(column)
        .map(drop)
        .map_err(|error| SchemaError(error.to_string()))
}

fn path(within: &str, name: &str) -> String {
    if within.is_empty() {
        name.to_owned()
    } else {
        format!("{within}.{name}")
    }
}

fn refuse(text: String) -> Result<(), SchemaError> {
    Err(SchemaError(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Mode;

    fn said(columns: Vec<Column>) -> String {
        Schema { columns }.check().unwrap_err().to_string()
    }

    fn column(name: &str, kind: Kind) -> Column {
        Column::new(name, kind, Mode::Nullable)
    }

    #[test]
    fn names_are_legal_and_different() {
        let named = |name: &str| Schema {
            columns: vec![column(name, Kind::Bool)],
        };
        for good in ["a", "_a1", "größe", "1st", "a b&c", "a\tb", &"x".repeat(300)] {
            assert_eq!(named(good).check(), Ok(()), "{good}");
        }
        let rule = "Fields must contain only letters, numbers, and underscores (or one of the characters that \
                    flexible column names allow), be at most 300 characters long, and not be empty.";
        for bad in ["", "a.b", "a;", "a\n", "`a`", &"x".repeat(301)] {
            let text = named(bad).check().unwrap_err().to_string();
            assert_eq!(text, format!("Invalid field name \"{bad}\". {rule}"));
        }
        let first = "_PARTITION, _TABLE_, _FILE_, _ROW_TIMESTAMP, __ROOT__ and _COLIDENTIFIER";
        let changes = "_CHANGE_SEQUENCE_NUMBER, _CHANGE_TYPE and _CHANGE_TIMESTAMP";
        for (bad, list) in [
            ("_PARTITIONTIME", first),
            ("_table_x", first),
            ("_File_", first),
            ("_row_timestamp", first),
            ("__ROOT__", first),
            ("_ColIdentifier_1", first),
            ("_change_type", changes),
            ("_CHANGE_SEQUENCE_NUMBER", changes),
            ("_CHANGE_TIMESTAMP", changes),
        ] {
            let text = named(bad).check().unwrap_err().to_string();
            let rule = "Field names are not allowed to start with the (case-insensitive) prefixes";
            assert_eq!(text, format!("Invalid field name \"{bad}\". {rule} {list}"));
        }
        let inner = vec![column("Ä", Kind::Bool), column("ä", Kind::Bool)];
        assert_eq!(
            said(vec![column("s", Kind::Struct(inner))]),
            "Duplicate field name: s.ä"
        );
    }

    #[test]
    fn sizes_are_limited() {
        let mut kind = Kind::Bool;
        for _ in 0..15 {
            kind = Kind::Struct(vec![column("s", kind)]);
        }
        let deep = |kind| Schema {
            columns: vec![column("s", kind)],
        };
        assert_eq!(deep(kind.clone()).check(), Ok(()));
        let deeper = deep(Kind::Struct(vec![column("s", kind)])).check().unwrap_err();
        assert_eq!(
            deeper.to_string(),
            format!(
                "Field {} is nested too deep: the most is 15 levels",
                ["s"; 16].join(".")
            )
        );
        let many = |count: usize| -> Vec<Column> {
            (0..count).map(|i| column(&format!("c{i}"), Kind::Bool)).collect()
        };
        let mut columns = many(9_998);
        columns.push(column("s", Kind::Struct(many(1))));
        let mut schema = Schema { columns };
        assert_eq!(schema.check(), Ok(()));
        schema.columns.push(column("last", Kind::Bool));
        assert_eq!(
            schema.check().unwrap_err().to_string(),
            "Too many total leaf fields: 10001, max allowed field count: 10000"
        );
    }

    #[test]
    fn parameters_are_within_their_types() {
        let numeric = |precision, scale| column("n", Kind::Numeric { precision, scale });
        let big = |precision, scale| column("n", Kind::BigNumeric { precision, scale });
        for good in [
            numeric(Some(38), Some(9)),
            numeric(Some(29), None),
            numeric(Some(9), Some(9)),
            numeric(Some(1), Some(0)),
            big(Some(76), Some(38)),
            big(Some(38), None),
        ] {
            assert_eq!(Schema { columns: vec![good] }.check(), Ok(()));
        }
        for bad in [
            numeric(Some(39), Some(9)),
            numeric(Some(30), None),
            numeric(Some(8), Some(9)),
            numeric(Some(10), Some(10)),
            numeric(Some(0), None),
            numeric(None, Some(1)),
            big(Some(39), None),
            big(Some(76), Some(39)),
        ] {
            assert_eq!(said(vec![bad]), "Invalid precision or scale for field n");
        }
        let long = |max| {
            column(
                "t",
                Kind::String {
                    max_length: Some(max),
                },
            )
        };
        assert_eq!(said(vec![long(0)]), "Invalid maxLength for field t");
        assert_eq!(
            said(vec![column("e", Kind::Struct(Vec::new()))]),
            "Field e is type RECORD but has no schema"
        );
    }

    #[test]
    fn a_default_is_a_value_of_its_whole_column() {
        let with = |sql: &str, mode| Column {
            default_value_expression: Some(sql.to_owned()),
            ..Column::new("d", Kind::Bool, mode)
        };
        for good in [with(" null ", Mode::Nullable), with("[true]", Mode::Repeated)] {
            assert_eq!(Schema { columns: vec![good] }.check(), Ok(()));
        }
        assert_eq!(
            said(vec![with("NULL", Mode::Required)]),
            "Invalid default value expression for column d: NULL where a value is REQUIRED"
        );
        assert_eq!(
            said(vec![with("1", Mode::Nullable)]),
            "Invalid default value expression for column d: it has type INT64, the column has type BOOL"
        );
        let inner = vec![with("true", Mode::Nullable)];
        assert_eq!(
            said(vec![column("s", Kind::Struct(inner))]),
            "Field s.d is a field of a STRUCT and cannot have a default value; set that of the whole STRUCT"
        );
    }
}
