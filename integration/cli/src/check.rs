//! `check`: everything that can be known before the first row.

use bigquery_sink::options;

use crate::args::CheckArguments;
use crate::failure::Failure;
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
    println!(
        "{}: source '{}', sink {table}, {} columns",
        arguments.pipeline.display(),
        pipeline.source.name,
        columns.fields().len()
    );
    if !arguments.connect {
        println!("ok; --connect also looks at the table");
        return Ok(());
    }
    if emulated {
        return Err(Failure::usage(
            "--connect has no use with endpoint = 'emulator', which 'run' starts anew each time",
        ));
    }
    Sinks::new(options)?.check(columns).await?;
    println!("ok; the columns fit the table");
    Ok(())
}
