//! `check`: everything that can be known before the first row.

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
