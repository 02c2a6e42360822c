//! `types`: the mapping table, what a pipeline's types become in BigQuery.

use std::fmt::Write as _;

use bigquery_write_proto::rows::{Mapping, MappingLine, Treatment, mapping, mapping_lines};
use serde_json::{Value, json};

use crate::args::TypesArguments;
use crate::failure::Failure;
use crate::output::print;
use crate::table;

pub(crate) fn types(arguments: &TypesArguments) -> Result<(), Failure> {
    if arguments.json {
        let lines = mapping().fold(String::new(), |mut lines, cell| {
            writeln!(lines, "{}", object(&cell)).expect("a String takes all text");
            lines
        });
        return print(&lines);
    }
    let lines = mapping_lines();
    let (written, refused): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.is_written());
    let written = section(
        &["column", "pipeline", "Arrow", "protobuf", "what arrives"],
        &written,
    );
    let refused = section(&["column", "pipeline", "what to do"], &refused);
    print(&format!(
        "Written:\n{written}\n\nRefused, before the first row:\n{refused}\n"
    ))
}

fn section(header: &[&str], lines: &[&MappingLine]) -> String {
    let rows = lines.iter().map(|line| {
        let mut row = vec![line.table_types().join(", "), line.pipeline_types()];
        match line.treatment {
            Treatment::Written { wire, proto, how } => {
                row.extend([wire.to_string(), proto.to_owned(), how.to_owned()]);
            }
            Treatment::Refused { remedy } => row.push(remedy.replace("{name}", "x")),
        }
        row
    });
    table::render(header.iter().map(|&title| title.to_owned()), rows)
}

fn object(cell: &Mapping) -> Value {
    let mut object = json!({
        "column": cell.table.to_string(),
        "pipeline": cell.pipeline.to_string(),
        "sql": cell.pipeline.sql(),
        "created": cell.created,
    });
    match cell.treatment {
        Treatment::Written { wire, proto, how } => {
            object["sent_as"] = json!({ "arrow": wire.to_string(), "proto": proto });
            object["arrives"] = how.into();
        }
        Treatment::Refused { remedy } => object["remedy"] = remedy.replace("{name}", "x").into(),
    }
    object
}
