//! The mapping table for people: cells of one column type that say the same are one line.

use std::fmt::Write as _;

use arrow_schema::TimeUnit::Nanosecond;

use super::{Mapping, PipelineType, TableType, Treatment, Zone, mapping};

/// Cells that say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingLine {
    /// The columns' types; one, if values are written.
    pub table: Vec<TableType>,
    /// What happens to values of these types.
    pub treatment: Treatment,
    /// The pipeline's types.
    pub pipeline: Vec<PipelineType>,
}

/// The cells of the mapping table, those that say the same taken together: first what is written, then what is refused.
pub fn mapping_lines() -> Vec<MappingLine> {
    let mut lines: Vec<MappingLine> = Vec::new();
    for Mapping {
        pipeline,
        table,
        treatment,
        ..
    } in mapping()
    {
        let same = |line: &&mut MappingLine| line.table == [table] && line.treatment == treatment;
        match lines.iter_mut().find(same) {
            Some(line) => line.pipeline.push(pipeline),
            None => lines.push(MappingLine {
                table: vec![table],
                treatment,
                pipeline: vec![pipeline],
            }),
        }
    }
    let (written, refused): (Vec<_>, Vec<_>) = lines.into_iter().partition(MappingLine::is_written);
    let mut lines = written;
    for refusal in refused {
        let same = |line: &&mut MappingLine| {
            line.treatment == refusal.treatment && line.pipeline == refusal.pipeline
        };
        match lines.iter_mut().find(same) {
            Some(line) => line.table.extend(refusal.table),
            None => lines.push(refusal),
        }
    }
    lines
}

impl MappingLine {
    /// Whether values of these types are written.
    pub fn is_written(&self) -> bool {
        matches!(self.treatment, Treatment::Written { .. })
    }

    /// The columns' types, as BigQuery's SQL spells them.
    pub fn table_types(&self) -> Vec<String> {
        self.table.iter().map(ToString::to_string).collect()
    }

    /// The pipeline's types in words: families by their names, the others by Arrow's.
    pub fn pipeline_types(&self) -> String {
        // The lines of a column share out all types.
        if !self.is_written() && self.pipeline.len() > PipelineType::ALL.len() / 2 {
            return "all others".to_owned();
        }
        let mut left = self.pipeline.clone();
        let mut names = Vec::new();
        for (name, belongs) in FAMILIES {
            let members = || PipelineType::ALL.iter().filter(|&&one| belongs(one));
            if members().all(|one| left.contains(one)) {
                left.retain(|&one| !belongs(one));
                names.push((*name).to_owned());
            }
        }
        names.extend(left.iter().map(ToString::to_string));
        names.join(", ")
    }
}

type Belongs = fn(PipelineType) -> bool;

/// Types that one name stands for, larger families first.
const FAMILIES: &[(&str, Belongs)] = &[
    ("all integers", PipelineType::is_integer),
    ("all floats", |one| {
        use PipelineType::{Float16, Float32, Float64};
        matches!(one, Float16 | Float32 | Float64)
    }),
    ("all decimals", |one| {
        matches!(one, PipelineType::Decimal128 | PipelineType::Decimal256)
    }),
    ("all text", PipelineType::is_text),
    ("all bytes", PipelineType::is_bytes),
    ("all dates", |one| {
        matches!(one, PipelineType::Date32 | PipelineType::Date64)
    }),
    ("all times", |one| matches!(one, PipelineType::Time(_))),
    ("all timestamps", |one| matches!(one, PipelineType::Timestamp(..))),
    (
        "timestamps in s, ms and µs",
        |one| matches!(one, PipelineType::Timestamp(unit, _) if unit != Nanosecond),
    ),
    ("timestamps in ns", |one| {
        matches!(one, PipelineType::Timestamp(Nanosecond, _))
    }),
    (
        "timestamps in s, ms and µs without zone or in UTC",
        |one| matches!(one, PipelineType::Timestamp(unit, Zone::None | Zone::Utc) if unit != Nanosecond),
    ),
    ("timestamps in ns without zone or in UTC", |one| {
        matches!(one, PipelineType::Timestamp(Nanosecond, Zone::None | Zone::Utc))
    }),
    ("timestamps of another zone", |one| {
        matches!(one, PipelineType::Timestamp(_, Zone::Other))
    }),
    ("all durations", |one| matches!(one, PipelineType::Duration(_))),
    ("all intervals", |one| matches!(one, PipelineType::Interval(_))),
    ("all lists and maps", PipelineType::is_list),
];

/// The page of the documentation.
pub fn describe() -> String {
    let mut page = String::from(HEAD);
    let lines = mapping_lines();
    let mut row =
        |cells: &[&str]| writeln!(page, "| {} |", cells.join(" | ")).expect("a String takes all text");
    row(&["column", "pipeline", "sent as (Arrow, protobuf)", "what arrives"]);
    row(&["---"; 4]);
    for line in &lines {
        if let Treatment::Written { wire, proto, how } = line.treatment
            && line.pipeline != [PipelineType::Null]
        {
            row(&[
                &in_code(&line.table_types()),
                &line.pipeline_types(),
                &format!("`{wire}`, `{proto}`"),
                how,
            ]);
        }
    }
    page.push_str(REFUSED);
    let mut row =
        |cells: &[&str]| writeln!(page, "| {} |", cells.join(" | ")).expect("a String takes all text");
    row(&["column", "pipeline", "what to do"]);
    row(&["---"; 3]);
    for line in &lines {
        if let Treatment::Refused { remedy } = line.treatment {
            let remedy = remedy.replace("{name}", "x");
            row(&[&in_code(&line.table_types()), &line.pipeline_types(), &remedy]);
        }
    }
    page.push_str(CREATED);
    let mut row =
        |cells: &[&str]| writeln!(page, "| {} |", cells.join(" | ")).expect("a String takes all text");
    row(&["pipeline (Arrow)", "in SQL", "column made"]);
    row(&["---"; 3]);
    for &pipeline in PipelineType::ALL {
        let made: Vec<String> = super::created(pipeline).iter().map(ToString::to_string).collect();
        let made = if made.is_empty() {
            "none: refused".to_owned()
        } else {
            in_code(&made)
        };
        row(&[&format!("`{pipeline}`"), &format!("`{}`", pipeline.sql()), &made]);
    }
    page.push_str(NAMES);
    page
}

fn in_code(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

const HEAD: &str = "\
# Types and names

Every value arrives as it was, or is refused: a type at the start, before the first row, a value as an error of its row. Nothing is rounded or cut but digits below a microsecond, \
if `write.sub_microseconds` is `truncate` (the default); they are counted. The column decides: a BIGINT of milliseconds is not taken for a TIMESTAMP.

`arroyo-bigquery types` prints these tables, `--json` every cell by itself. A dictionary or a run-end encoded array stands for its values. NULL in a REQUIRED column is a row error, \
so is a NULL element of an array. A STRUCT's fields and an array's elements go by the same tables. A map is an array of STRUCTs of `key` and `value`. A column that is nothing but NULL is NULL whatever the table's type, in an ARRAY the empty array.

## What is written

";

const REFUSED: &str = "
## What is refused

";

const CREATED: &str = "
## What `table.create` makes

NOT NULL becomes REQUIRED, a list REPEATED. A decimal becomes NUMERIC if every value of its type fits (29 digits before the point, 9 behind it), else BIGNUMERIC (38 and 38), else it is refused. \
Text becomes JSON if the pipeline says that it is (the JSON type of its SQL), else STRING. STRUCTs are nested 15 deep at most.

";

const NAMES: &str = "
## Names

- Names are matched without regard to case, as BigQuery does, and written as the table spells them. Upper and lower case are Unicode's default mapping, without regard to language: `Größe` and \
`GRÖßE` are one name, `größe` and `grösse` are two, and so is `naïve` composed and decomposed. Google documents that case does not count, not what that means beyond ASCII.
- Two columns whose names differ in case only are refused at the start, in STRUCTs too.
- A name has 1 to 300 characters and none of ``! \" $ ( ) * , . / ; ? @ [ \\ ] ^ ` { } ~`` or control characters. Hyphens, spaces and letters beyond ASCII are taken as they are.
- Prefixes that BigQuery keeps for itself are refused, whatever their case: `_TABLE_`, `_FILE_`, `_PARTITION`, `_ROW_TIMESTAMP`, `__ROOT__`, `_COLIDENTIFIER`, `_CHANGE_`.
- A column that the table has and the pipeline does not write gets its default value, or NULL. One that the pipeline writes and the table lacks is refused.
";
