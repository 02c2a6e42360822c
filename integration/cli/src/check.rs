//! `check`: everything that can be known before the first row.

use arrow_schema::{DataType, FieldRef, Fields, TimeUnit};
use bigquery_sink::options::SubMicroseconds;
use bigquery_sink::{TableLook, options};

use crate::args::CheckArguments;
use crate::failure::Failure;
use crate::output::print;
use crate::run::load;
use crate::sink::{self, Sinks};

pub(crate) async fn check(arguments: CheckArguments) -> Result<(), Failure> {
    let pipeline = load(&arguments.pipeline)?;
    let emulated = sink::wants_emulator(&pipeline);
    // The tool would start one; nothing is asked of it here.
    let nowhere = options::Emulator {
        grpc: "http://127.0.0.1:1",
        http: "http://127.0.0.1:1",
    };
    let options = sink::options(&pipeline, emulated.then_some(nowhere))?;
    let table = options.table.to_string();
    let columns = &pipeline.sink.columns;
    let count = columns.fields().len();
    let mut told = format!(
        "{}: source '{}', sink {table}, {count} column{}, each row {}\n",
        arguments.pipeline.display(),
        pipeline.source.name,
        if count == 1 { "" } else { "s" },
        options.mode.guarantee()
    );
    let finer = nanoseconds("", columns.fields());
    if options.sub_microseconds == SubMicroseconds::Truncate && !finer.is_empty() {
        told.push_str(&format!(
            "note: digits below a microsecond are cut off in {}, unless the table's column is a TIMESTAMP(12); \
             'write.sub_microseconds' = 'refuse' makes such rows errors\n",
            finer.join(", ")
        ));
    }
    if !arguments.connect {
        told.push_str("ok; --connect also looks at the table\n");
        return print(&told);
    }
    if emulated {
        return Err(Failure::usage(
            "--connect has no use with endpoint = 'emulator', which 'run' starts anew each time",
        ));
    }
    let looks = Sinks::new(options)?.check(columns).await?;
    let ok = found("the table", "the columns fit the table", looks.table);
    told.push_str(&format!("ok; {ok}\n"));
    if let Some(look) = looks.dead_letters {
        let ok = found("the dead-letter table", "dead letters fit their table", look);
        told.push_str(&format!("ok; {ok}\n"));
    }
    print(&told)
}

/// Dotted paths of the columns whose times are finer than BigQuery's.
fn nanoseconds(parent: &str, fields: &Fields) -> Vec<String> {
    let of_field = |field: &FieldRef| of_type(&format!("{parent}{}", field.name()), field.data_type());
    fields.iter().flat_map(of_field).collect()
}

fn of_type(path: &str, data_type: &DataType) -> Vec<String> {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Time64(TimeUnit::Nanosecond) => {
            vec![path.to_owned()]
        }
        DataType::List(item) => of_type(path, item.data_type()),
        DataType::Struct(fields) => nanoseconds(&format!("{path}."), fields),
        _ => Vec::new(),
    }
}

fn found(table: &str, fits: &str, look: TableLook) -> String {
    match look {
        TableLook::Fits => fits.to_owned(),
        TableLook::WillGain(added) => {
            let added = added.join(", ");
            format!("{table} lacks columns, which will be added ('schema.update' = 'add_columns'): {added}")
        }
        TableLook::WillBeCreated => {
            format!("{table} does not exist and will be created ('table.create' = 'if_missing')")
        }
    }
}
