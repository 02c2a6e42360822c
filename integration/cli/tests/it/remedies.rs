//! What an error of columns says one should write instead, written: each remedy is SQL, and what it makes goes into the column.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::{Field, Schema, TimeUnit};
use bigquery_sink_pipeline::Pipeline;
use bigquery_write_proto::rows::{
    MissingValues, PipelineType, RowEncoder, RowOptions, SubMicroseconds, TableType, Treatment, Zone, mapping,
};
use bigquery_write_proto::wire::TableSchema;
use bigquery_write_proto::wire::table_field_schema::Mode;

/// Types that a source can declare, as the mapping table knows them.
const DECLARED: [(&str, PipelineType); 13] = [
    ("BOOLEAN", PipelineType::Boolean),
    ("SMALLINT", PipelineType::Int16),
    ("INT", PipelineType::Int32),
    ("BIGINT", PipelineType::Int64),
    ("INT UNSIGNED", PipelineType::UInt32),
    ("BIGINT UNSIGNED", PipelineType::UInt64),
    ("REAL", PipelineType::Float32),
    ("DOUBLE", PipelineType::Float64),
    ("DECIMAL(20, 4)", PipelineType::Decimal128),
    ("TEXT", PipelineType::Utf8),
    ("DATE", PipelineType::Date32),
    ("TIME", PipelineType::Time(TimeUnit::Nanosecond)),
    (
        "TIMESTAMP(3)",
        PipelineType::Timestamp(TimeUnit::Millisecond, Zone::None),
    ),
];

const OPTIONS: RowOptions = RowOptions {
    sub_microseconds: SubMicroseconds::Truncate,
    missing_values: MissingValues::Null,
};

/// The column that a query makes of a source's `x`.
fn queried(declared: &str, expression: &str) -> Result<Arc<Schema>, String> {
    let sql = format!(
        "CREATE TABLE src (x {declared}) WITH (connector = 'single_file', type = 'source', path = 'x.json', format = 'json');
         CREATE TABLE snk WITH (connector = 'bigquery', type = 'sink', project = 'p', dataset = 'd', 'table' = 't');
         INSERT INTO snk SELECT {expression} AS x FROM src;"
    );
    let pipeline = Pipeline::parse(&sql, Path::new("remedy.sql"));
    pipeline
        .map(|pipeline| pipeline.sink.columns)
        .map_err(|errors| errors.to_string())
}

/// Why such a column does not go into the table's.
fn problem(input: &Arc<Schema>, table: TableType) -> Option<String> {
    let mut column = table.column("x");
    if table == TableType::Array {
        // Of what the query's array is of.
        column = TableType::String.column("x");
        column.mode = Mode::Repeated.into();
    }
    let table = TableSchema { fields: vec![column] };
    let problems = RowEncoder::new(input, &table, OPTIONS).err()?;
    Some(problems[0].to_string())
}

#[test]
fn what_a_remedy_says_can_be_written_and_goes_into_the_column() {
    let mut wrong = Vec::new();
    let mut written = 0;
    for (declared, pipeline) in DECLARED {
        let input = Schema::new(vec![Field::new("x", pipeline.example(), true)]);
        for cell in mapping().filter(|cell| cell.pipeline == pipeline) {
            let Treatment::Refused { remedy } = cell.treatment else {
                continue;
            };
            assert!(problem(&Arc::new(input.clone()), cell.table).is_some());
            let Some((_, example)) = remedy.split_once("for example ") else {
                continue;
            };
            // The bounds of a range are the reader's own, and so is what an array is of.
            let (declared, example) = match cell.table {
                TableType::RangeOfDate => ("DATE", example.replace("a,", "x,").replace("b)", "x)")),
                TableType::RangeOfDatetime | TableType::RangeOfTimestamp => {
                    ("TIMESTAMP(3)", example.replace("a,", "x,").replace("b)", "x)"))
                }
                TableType::Array => ("TEXT", example.replace("{name}", "x")),
                _ => (declared, example.replace("{name}", "x")),
            };
            let said = match queried(declared, &example) {
                Ok(columns) => problem(&columns, cell.table),
                Err(error) => Some(error),
            };
            written += 1;
            if let Some(said) = said {
                wrong.push(format!("{declared} by {example} into {}: {said}", cell.table));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {written}: {wrong:#?}", wrong.len());
    assert!(written > 100, "{written}");
}
