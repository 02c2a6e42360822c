//! Files that are damaged, cut, compressed, or something else than they are said to be.

use parquet::basic::BrotliLevel;

use super::*;

#[tokio::test]
async fn what_is_no_parquet_file_is_refused_by_name() {
    let behind = "; if it is none of the data, leave it out by the option 'source.regex_pattern'";
    let mut world = World::parquet();
    world.write_parquet("a", 0..10, 5);
    let whole = std::fs::read(world.path("a")).unwrap();
    let mut encrypted = whole.clone();
    encrypted.splice(whole.len() - 4.., *b"PARE");
    let mut long = whole.clone();
    long.splice(whole.len() - 8..whole.len() - 4, u32::MAX.to_le_bytes());
    for (bytes, reason) in [
        (&b""[..], "has 0 bytes, which is no Parquet file"),
        (b"{\"id\": 1}\n", "has 10 bytes, which is no Parquet file"),
        (
            b"{\"id\": 1, \"name\": \"x\"}\n",
            "does not end like a Parquet file: it is something else, or was cut",
        ),
        (
            &whole[..whole.len() - 1],
            "does not end like a Parquet file: it is something else, or was cut",
        ),
        (
            &long,
            "does not end like a Parquet file: it is something else, or was cut",
        ),
        (&encrypted, "is an encrypted Parquet file, which is not read"),
    ] {
        world.write("a", bytes);
        assert_eq!(
            world.read().await.unwrap_err(),
            format!("FOLDER/in/a: {reason}{behind}")
        );
    }
}

#[tokio::test]
async fn a_damaged_page_is_named_by_its_file_and_row_group() {
    let world = World::parquet();
    world.write_parquet("a", 0..10, 5);
    let mut bytes = std::fs::read(world.path("a")).unwrap();
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new();
    let metadata = metadata
        .parse_and_finish(&File::open(world.path("a")).unwrap())
        .unwrap();
    let (begin, length) = metadata.row_group(1).column(0).byte_range();
    bytes[begin as usize..(begin + length) as usize].fill(0xff);
    world.write("a", &bytes);
    let mut source = world.open().await.unwrap();
    assert_eq!(rows(&source.next().await.unwrap().unwrap()), shown(0..5));
    let error = world.said(&source.next().await.unwrap_err());
    let damaged = "FOLDER/in/a: row group 1 cannot be decoded: it is damaged; put the old file back, or start anew with --new-state";
    assert_eq!(error, damaged);
}

/// Not every change can be seen: where a page has no checksum, another value is as good as the one before.
#[tokio::test]
async fn whatever_byte_is_damaged_the_run_ends_with_the_files_name_or_reads_its_rows() {
    let mut world = World::parquet();
    world.write_parquet("a", 0..10, 5);
    let whole = std::fs::read(world.path("a")).unwrap();
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        world.write("a", &bytes);
        world.stored.clear();
        match world.read().await {
            Ok(rows) => assert_eq!(rows.len(), 10, "byte {at}"),
            Err(error) => {
                assert!(error.starts_with("FOLDER/in/a: "), "byte {at}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > whole.len() / 4, "{refused} of {}", whole.len());
}

#[tokio::test]
async fn every_compression_is_read_but_those_refused_by_name() {
    use parquet::basic::{GzipLevel, ZstdLevel};
    for compression in [
        Codec::UNCOMPRESSED,
        Codec::SNAPPY,
        Codec::ZSTD(ZstdLevel::default()),
        Codec::GZIP(GzipLevel::default()),
        Codec::LZ4,
        Codec::LZ4_RAW,
    ] {
        let mut world = World::parquet();
        write_batch(&world.path("a"), &numbered(0..50), 20, compression);
        assert_eq!(world.read().await.unwrap(), shown(0..50), "{compression}");
    }
    for (compression, name) in [
        (Codec::BROTLI(BrotliLevel::default()), "BROTLI"),
        (Codec::LZO, "LZO"),
    ] {
        let mut world = World::parquet();
        write_batch(&world.path("a"), &numbered(0..50), 20, Codec::SNAPPY);
        pretend(&world.path("a"), compression);
        let refused = format!(
            "column id is compressed as {name}, which is not read; write it as SNAPPY, ZSTD, GZIP or LZ4"
        );
        assert_eq!(world.read().await.unwrap_err(), format!("FOLDER/in/a: {refused}"));
    }
}

/// Has the footer say that every column is compressed so.
fn pretend(path: &std::path::Path, compression: Codec) {
    use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
    let mut bytes = std::fs::read(path).unwrap();
    let tail = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let footer = bytes.split_off(tail - length);
    let mut metadata = ParquetMetaDataReader::decode_metadata(&footer[..length])
        .unwrap()
        .into_builder();
    for row_group in metadata.take_row_groups() {
        let mut row_group = row_group.into_builder();
        let columns = row_group.take_columns().into_iter();
        let columns = columns.map(|column| {
            column
                .into_builder()
                .set_compression(compression)
                .build()
                .unwrap()
        });
        let row_group = row_group.set_column_metadata(columns.collect()).build().unwrap();
        metadata = metadata.add_row_group(row_group);
    }
    ParquetMetaDataWriter::new(&mut bytes, &metadata.build())
        .finish()
        .unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(start_paused = true)]
async fn compressed_files_that_are_cut_damaged_changed_or_not_said_to_be_are_named() {
    let text = "{\"id\": 1}\n{\"id\": 2}\n{\"id\": 3}\n";
    for (compression, name) in [(Compression::Gzip, "gzip"), (Compression::Zstd, "zstd")] {
        let whole = packed(compression, text).await;
        let mut world = World::json().dropping();
        world.write("a", &whole);
        let unsaid = format!(
            "FOLDER/in/a: begins like a file compressed by {name}; set 'source.compression' = '{name}'"
        );
        assert_eq!(world.read().await.unwrap_err(), unsaid);
        world.config.compression = compression;
        assert_eq!(world.read().await.unwrap(), ["1", "2", "3"]);
        for damaged in [&whole[..whole.len() - 3], text.as_bytes()] {
            world.stored.clear();
            world.write("a", damaged);
            let error = world.read().await.unwrap_err();
            let expected = format!("FOLDER/in/a: cannot be unpacked as {name} behind line ");
            assert!(error.starts_with(&expected), "{error}");
        }
        let mut world = world.with_batches(1.0);
        world.stored.clear();
        world.write("a", &whole);
        world.read_batches(2).await;
        world.write("a", packed(compression, &text.replace('2', "4")).await);
        let changed = "FOLDER/in/a: has changed before byte 20, up to which it was read; put the old file back, or start anew with --new-state";
        assert_eq!(world.read().await.unwrap_err(), changed);
        world.write("a", packed(compression, "{\"id\": 1}\n").await);
        let short = "FOLDER/in/a: has 10 bytes, but 20 were read from it before; put the whole file back, or start anew with --new-state";
        assert_eq!(world.read().await.unwrap_err(), short);
    }
}
