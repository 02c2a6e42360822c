//! Rows as a table that a person can read.

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::ArrowError;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};

/// A table of texts.
pub(crate) fn render<R: IntoIterator<Item = String>>(
    header: impl IntoIterator<Item = String>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}

/// The rows of a batch, NULL spelled out.
pub(crate) fn render_batch(batch: &RecordBatch) -> Result<String, ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let header = batch
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect::<Vec<_>>();
    let rows =
        (0..batch.num_rows()).map(|row| columns.iter().map(move |column| column.value(row).to_string()));
    Ok(render(header, rows))
}
