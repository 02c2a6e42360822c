//! Names of columns: which BigQuery takes, and which it takes for the same.

/// Prefixes that BigQuery keeps for itself, folded (reports.md 77).
const RESERVED: [&str; 7] = [
    "_table_",
    "_file_",
    "_partition",
    "_row_timestamp",
    "__root__",
    "_colidentifier",
    "_change_",
];

/// Longest name of a column, in characters.
const LENGTH: usize = 300;

/// Characters that no column's name holds, not even a flexible one.
const FORBIDDEN: &str = "!\"$()*,./;?@[\\]^`{}~";

/// The dotted path of a field.
pub(super) fn join_path(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// BigQuery's column names ignore case (reports.md 75). Beyond ASCII Google does not say how; this is Unicode's mapping to lower case.
pub(super) fn folded(name: &str) -> String {
    name.to_lowercase()
}

/// Why no column can have this name.
pub(super) fn fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.chars().count() > LENGTH {
        return Some(format!("it is longer than {LENGTH} characters"));
    }
    // A tab is white space, which flexible names may have (D:schemas).
    let forbidden = |&c: &char| FORBIDDEN.contains(c) || (c.is_control() && c != '\t');
    if let Some(c) = name.chars().find(forbidden) {
        return Some(format!("{c:?} is not allowed"));
    }
    let name = folded(name);
    let prefix = RESERVED.iter().find(|prefix| name.starts_with(**prefix))?;
    Some(format!("the prefix {} is reserved", prefix.to_uppercase()))
}
