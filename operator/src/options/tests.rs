//! The options table holds what it says; every rule about several options together has a case.

use super::*;

const REQUIRED: &[(&str, &str)] = &[("project", "shop"), ("dataset", "sales"), ("table", "orders")];

fn pairs(options: &[(&str, &str)]) -> Vec<(String, String)> {
    options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The required options and the given ones.
fn parse(options: &[(&str, &str)]) -> Result<SinkOptions, Vec<String>> {
    let options = pairs(&[REQUIRED, options].concat());
    SinkOptions::parse(&options).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn refusal(options: &[(&str, &str)]) -> String {
    let problems = parse(options).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems[0].clone()
}

/// What goes with an option that is tried, so that it is not refused for another reason.
fn beside(spec: &OptionSpec, word: &str) -> &'static [(&'static str, &'static str)] {
    match spec.name {
        // The smallest window is tried with the smallest append.
        "write.inflight.bytes" => &[("write.append.bytes", "64 KiB")],
        "row_errors" if word == "dead_letter" => &[("dead_letter.table", "refused")],
        "table.partition_type" => &[("table.create", "if_missing")],
        "table.partition_expiration" => &[("table.create", "if_missing"), ("table.partition_type", "day")],
        _ => &[],
    }
}

#[test]
fn defaults_are_those_of_the_design() {
    let options = parse(&[]).unwrap();
    assert_eq!(
        options.table.to_string(),
        "projects/shop/datasets/sales/tables/orders"
    );
    assert_eq!(options.mode, WriteMode::ExactlyOnce);
    assert_eq!(options.format, Format::Arrow);
    assert_eq!(options.append_bytes, 2 << 20);
    assert_eq!(options.append_linger, Duration::from_millis(200));
    assert_eq!(options.inflight_bytes, 64 << 20);
    assert_eq!(options.inflight_requests, 256);
    assert_eq!(options.inflight_time, Duration::from_secs(2));
    assert_eq!(options.sub_microseconds, SubMicroseconds::Truncate);
    assert_eq!(options.missing_values, MissingValues::Null);
    assert_eq!(options.row_errors, RowErrors::Fail);
    assert_eq!(options.create, CreateTable::Never);
    assert_eq!(options.layout, TableLayout::default());
    assert_eq!(options.schema_update, SchemaUpdate::default());
    assert_eq!(options.primary_key, [""; 0]);
    assert_eq!(options.append_timeout, Duration::from_secs(300));
    assert_eq!(options.commit_timeout, Duration::from_secs(600));
    assert_eq!(options.quota_timeout, Duration::from_secs(900));
    assert_eq!(options.unprovable, UnprovableCommit::Fail);
    assert_eq!(options.credentials, Credentials::Adc);
    assert_eq!(options.quota_project, None);
    assert_eq!(
        options.endpoints.grpc.as_str(),
        "https://bigquerystorage.googleapis.com"
    );
    assert_eq!(options.endpoints.http.as_str(), "https://bigquery.googleapis.com");
    assert_eq!(options.endpoints.ca, None);
}

#[test]
fn every_option_reaches_its_field() {
    let options = parse(&[
        ("connector", "bigquery"),
        ("type", "sink"),
        ("write.mode", "exactly_once"),
        ("write.format", "proto"),
        ("write.append.bytes", "128 KiB"),
        ("write.append.linger", "0 ms"),
        ("write.inflight.bytes", "3000000"),
        ("write.inflight.requests", "7"),
        ("write.inflight.time", "500ms"),
        ("write.sub_microseconds", "refuse"),
        ("write.missing_values", "default"),
        ("row_errors", "dead_letter"),
        ("dead_letter.table", "orders_refused"),
        ("dead_letter.max_ratio", "0.25"),
        ("table.create", "if_missing"),
        ("append.timeout", "30 seconds"),
        ("commit.timeout", "INTERVAL '2' MINUTE"),
        ("quota.timeout", "1h 30m"),
        ("commit.unprovable", "accept_loss"),
        ("credentials", "/etc/keys/{{ KEY_NAME }}.json"),
        ("quota_project", "billing"),
        ("endpoint.grpc", "https://10.0.0.1:444"),
        ("endpoint.http", "http://bigquery:9050/"),
        ("endpoint.ca", "/etc/ca.pem"),
        ("endpoint.insecure", "true"),
    ])
    .unwrap();
    assert_eq!(options.format, Format::Proto);
    assert_eq!(options.append_bytes, 128 << 10);
    assert_eq!(options.append_linger, Duration::ZERO);
    assert_eq!(options.inflight_bytes, 3_000_000);
    assert_eq!(options.inflight_requests, 7);
    assert_eq!(options.inflight_time, Duration::from_millis(500));
    assert_eq!(options.sub_microseconds, SubMicroseconds::Refuse);
    assert_eq!(options.missing_values, MissingValues::Default);
    let dead_letters = RowErrors::DeadLetter {
        table: "projects/shop/datasets/sales/tables/orders_refused"
            .parse()
            .unwrap(),
        max_ratio: 0.25,
    };
    assert_eq!(options.row_errors, dead_letters);
    assert_eq!(options.create, CreateTable::IfMissing);
    assert_eq!(options.append_timeout, Duration::from_secs(30));
    assert_eq!(options.commit_timeout, Duration::from_secs(120));
    assert_eq!(options.quota_timeout, Duration::from_secs(5400));
    assert_eq!(options.unprovable, UnprovableCommit::AcceptLoss);
    assert_eq!(
        options.credentials,
        Credentials::File("/etc/keys/{{ KEY_NAME }}.json".to_owned())
    );
    assert_eq!(options.quota_project.unwrap().as_str(), "billing");
    assert_eq!(options.endpoints.grpc.as_str(), "https://10.0.0.1:444");
    assert_eq!(options.endpoints.http.as_str(), "http://bigquery:9050");
    assert_eq!(options.endpoints.ca, Some(PathBuf::from("/etc/ca.pem")));
    assert_eq!(
        parse(&[("commit.unprovable", "assume_visible")])
            .unwrap()
            .unprovable,
        UnprovableCommit::AssumeVisible
    );
}

#[test]
fn every_name_in_the_table_is_there_once_and_described() {
    let mut names: Vec<&str> = OPTIONS.iter().map(|spec| spec.name).collect();
    let page = describe();
    for spec in OPTIONS {
        assert!(
            page.contains(&format!("`{}`", spec.name)),
            "{} is not on the page",
            spec.name
        );
        assert!(spec.meaning.ends_with('.'), "{}", spec.name);
    }
    names.sort_unstable();
    let known = names.len();
    names.dedup();
    assert_eq!(names.len(), known);
    assert!(page.contains(
        "| `write.append.bytes` | `2 MiB` | a size from 64 KiB to 9 MiB, such as `2 MiB` | Rows are joined"
    ));
    assert!(page.contains("| `table.create` | `never` | `never` or `if_missing` |"));
}

#[test]
fn every_word_of_the_table_is_taken_or_refused_as_not_yet_supported() {
    for spec in OPTIONS
        .iter()
        .filter(|spec| spec.step == Step::Now && spec.name != "endpoint")
    {
        let Accepts::OneOf(choices) = spec.accepts else {
            continue;
        };
        for choice in choices {
            let result = parse(&[beside(spec, choice.value), &[(spec.name, choice.value)]].concat());
            match choice.step {
                Step::Now => drop(result.unwrap_or_else(|problems| panic!("{}: {problems:?}", choice.value))),
                _ => assert_eq!(
                    result.unwrap_err(),
                    [format!(
                        "option '{}': '{}' is not yet supported; use {}",
                        spec.name,
                        choice.value,
                        spec.accepts.describe()
                    )]
                ),
            }
        }
        let problem = refusal(&[beside(spec, "Nonsense"), &[(spec.name, "Nonsense")]].concat());
        let accepts = spec.accepts.describe();
        assert_eq!(
            problem,
            format!(
                "option '{}': 'Nonsense' is not accepted; accepted is {accepts}",
                spec.name
            )
        );
    }
}

#[test]
fn every_bound_of_the_table_holds() {
    for spec in OPTIONS.iter().filter(|spec| spec.step == Step::Now) {
        let micros = |time: Duration| format!("{} us", time.as_micros());
        let (inside, outside) = match spec.accepts {
            Accepts::Bytes { min, max } | Accepts::Count { min, max } => {
                let outside = [(min - 1).to_string(), (max + 1).to_string(), u64::MAX.to_string()];
                ([min.to_string(), max.to_string()], outside.to_vec())
            }
            Accepts::Time { min, max } => {
                let above = micros(max + Duration::from_micros(1));
                let below = min.checked_sub(Duration::from_micros(1)).map(micros);
                (
                    [micros(min), micros(max)],
                    [above].into_iter().chain(below).collect(),
                )
            }
            _ => continue,
        };
        let base = beside(spec, "");
        for value in inside {
            parse(&[base, &[(spec.name, value.as_str())]].concat()).unwrap();
        }
        for value in
            outside
                .iter()
                .map(String::as_str)
                .chain(["", " ", "-1", "1e99", "many", "½ MiB", "5 parsecs"])
        {
            let problem = refusal(&[base, &[(spec.name, value)]].concat());
            let accepts = spec.accepts.describe();
            assert_eq!(
                problem,
                format!(
                    "option '{}': '{value}' is not accepted; accepted is {accepts}",
                    spec.name
                )
            );
        }
    }
}

#[test]
fn an_option_of_a_later_step_is_refused_as_such() {
    for spec in OPTIONS.iter().filter(|spec| spec.step != Step::Now) {
        assert_eq!(
            refusal(&[(spec.name, "1")]),
            format!("option '{}' is not yet supported", spec.name)
        );
    }
}

#[test]
fn an_unknown_option_is_named_with_the_nearest_known_one() {
    assert_eq!(
        refusal(&[("write.apend.bytes", "1 MiB")]),
        "there is no option 'write.apend.bytes'; did you mean 'write.append.bytes'?"
    );
    assert_eq!(
        refusal(&[("Endpoint.GRPC", "http://127.0.0.1:1")]),
        "there is no option 'Endpoint.GRPC'; did you mean 'endpoint.grpc'?"
    );
    assert_eq!(refusal(&[("xyzzy", "1")]), "there is no option 'xyzzy'");
}

#[test]
fn all_problems_are_told_at_once() {
    let problems = SinkOptions::parse(&pairs(&[
        ("project", "Shop"),
        ("table", "orders$2024"),
        ("write.append.bytes", "10 MiB"),
        ("write.streams", "2"),
        ("write.mode", "upsert"),
        ("endpoint.grpc", "bigquery:9060"),
        ("write.append.bytes", "10 MiB"),
    ]))
    .unwrap_err();
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "option 'write.streams' is not yet supported",
            "option 'write.mode': 'upsert' is not yet supported; use 'exactly_once' or 'at_least_once'",
            "option 'write.append.bytes' is given twice",
            "option 'project': invalid project \"Shop\": 'S' is not allowed; allowed are lower-case letters, digits and hyphens",
            "option 'dataset' is required",
            "option 'table': invalid partition decorator \"2024\": it must have the form YYYYMMDD; rows can be written to a day, \
             not to a year",
            "option 'write.append.bytes': '10 MiB' is not accepted; accepted is a size from 64 KiB to 9 MiB, such as '2 MiB'",
            "option 'endpoint.grpc': 'bigquery' is neither http nor https; accepted is an address such as 'https://host' or \
             'http://127.0.0.1:9060'",
        ]
    );
    assert_eq!(problems[4].option, "dataset");
}

#[test]
fn a_window_smaller_than_one_append_is_refused() {
    assert_eq!(
        refusal(&[("write.inflight.bytes", "1 MiB")]),
        "option 'write.inflight.bytes' must not be smaller than 'write.append.bytes'"
    );
}

#[test]
fn sizes_and_durations_are_read_in_their_usual_spellings() {
    for (text, size) in [
        ("65536", 65536),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("1.5 MiB", 1_572_864),
        (" 2 MB ", 2_000_000),
        ("100 kB", 100_000),
        ("70000 bytes", 70_000),
    ] {
        assert_eq!(values::bytes(text), Some(size), "{text}");
    }
    for text in [
        "1.0001 kB",
        "1..5 MiB",
        "MiB",
        "1 MiB 2",
        "0x10",
        "18446744073709551615 KiB",
        "99999999999999999999",
    ] {
        assert_eq!(values::bytes(text), None, "{text}");
    }
    for (text, millis) in [
        ("200 ms", 200),
        ("5 min", 300_000),
        ("5 minutes", 300_000),
        ("5 MINUTES", 300_000),
        ("interval '1 hour 30 minutes'", 5_400_000),
        ("INTERVAL '10' SECONDS", 10_000),
        ("1h30m", 5_400_000),
        ("interval '20 milliseconds'", 20),
    ] {
        assert_eq!(
            values::duration(text),
            Some(Duration::from_millis(millis)),
            "{text}"
        );
    }
    for text in ["5", "minutes", "5 mins 3", "-5 s", "999999999999999999999 s"] {
        assert_eq!(values::duration(text), None, "{text}");
    }
}

#[test]
fn plaintext_beyond_this_machine_needs_to_be_asked_for() {
    for loopback in [
        "http://127.0.0.1:9060",
        "http://127.8.8.8",
        "http://[::1]:9060",
        "http://localhost:1",
        "http://bq.localhost",
    ] {
        parse(&[("endpoint.grpc", loopback)]).unwrap();
    }
    for other in [
        "http://10.0.0.1:9060",
        "http://bigquery:9060",
        "http://localhost.example.com",
        "http://[::ffff:10.0.0.1]:1",
    ] {
        let problem = refusal(&[("endpoint.grpc", other)]);
        assert!(
            problem.ends_with("use https://, or set endpoint.insecure = 'true'"),
            "{problem}"
        );
        parse(&[("endpoint.grpc", other), ("endpoint.insecure", "true")]).unwrap();
    }
    assert_eq!(
        refusal(&[("endpoint.http", "http://10.0.0.1:80")]),
        "option 'endpoint.http': http://10.0.0.1 is another machine and http:// is readable by everyone in between; use https://, or \
         set endpoint.insecure = 'true'"
    );
}

#[test]
fn an_endpoint_is_scheme_host_and_port_only() {
    for (text, reason) in [
        ("ftp://host", "'ftp' is neither http nor https"),
        (
            "https://me:hunter2@host",
            "user and password do not belong into an address; see 'credentials'",
        ),
        ("https://host/path", "it must end after host and port"),
        ("https://host?x=1", "it must end after host and port"),
        ("", "not an address: relative URL without a base"),
        ("https://", "not an address: empty host"),
    ] {
        let problem = refusal(&[("endpoint.grpc", text)]);
        let accepts = "accepted is an address such as 'https://host' or 'http://127.0.0.1:9060'";
        assert_eq!(problem, format!("option 'endpoint.grpc': {reason}; {accepts}"));
    }
}

#[test]
fn a_table_is_not_created_in_one_place_and_written_in_another() {
    let create = ("table.create", "if_missing");
    let problem = "options 'endpoint.grpc' and 'endpoint.http' must be given together when 'table.create' is 'if_missing': the table is \
                   created at one and written at the other";
    assert_eq!(
        refusal(&[create, ("endpoint.grpc", "http://127.0.0.1:9060")]),
        problem
    );
    assert_eq!(
        refusal(&[create, ("endpoint.http", "http://127.0.0.1:9050")]),
        problem
    );
    parse(&[
        create,
        ("endpoint.grpc", "http://127.0.0.1:9060"),
        ("endpoint.http", "http://127.0.0.1:9050"),
    ])
    .unwrap();
    parse(&[("endpoint.grpc", "http://127.0.0.1:9060")]).unwrap();
}

#[test]
fn an_authority_without_tls_is_refused() {
    assert_eq!(
        refusal(&[
            ("endpoint.grpc", "http://127.0.0.1:9060"),
            ("endpoint.ca", "ca.pem")
        ]),
        "option 'endpoint.ca' has no use: 'endpoint.grpc' is http:// and has no certificate"
    );
}

#[test]
fn the_emulator_is_resolved_by_the_host_or_refused() {
    let options = pairs(&[REQUIRED, &[("endpoint", "emulator")]].concat());
    assert!(SinkOptions::wants_emulator(&options));
    assert!(!SinkOptions::wants_emulator(&pairs(REQUIRED)));
    assert_eq!(
        refusal(&[("endpoint", "emulator")]),
        "option 'endpoint': 'emulator' works with the command-line tool only, which starts one; here give 'endpoint.grpc' and \
         'endpoint.http' of a running emulator"
    );
    let at = Emulator {
        grpc: "http://127.0.0.1:4000",
        http: "http://127.0.0.1:4001",
    };
    let resolved = SinkOptions::parse_with_emulator(&options, at).unwrap().endpoints;
    assert_eq!(
        (resolved.grpc.as_str(), resolved.http.as_str()),
        (at.grpc, at.http)
    );

    let both = pairs(
        &[
            REQUIRED,
            &[("endpoint", "emulator"), ("endpoint.grpc", "http://127.0.0.1:1")],
        ]
        .concat(),
    );
    let problems = SinkOptions::parse_with_emulator(&both, at).unwrap_err();
    assert_eq!(
        problems[0].message,
        "option 'endpoint.grpc' has no use beside endpoint = 'emulator'"
    );
    // Without the option the host's emulator is of no interest.
    let plain = SinkOptions::parse_with_emulator(&pairs(REQUIRED), at).unwrap();
    assert_eq!(
        plain.endpoints.grpc.as_str(),
        "https://bigquerystorage.googleapis.com"
    );
}

#[test]
fn a_key_in_the_sql_is_refused_and_not_repeated() {
    let problem = refusal(&[(
        "credentials",
        r#"{"type": "service_account", "private_key": "hunter2"}"#,
    )]);
    assert!(problem.contains("a key does not belong into SQL"), "{problem}");
    assert!(!problem.contains("hunter2"), "{problem}");
    assert_eq!(
        refusal(&[("credentials", " ")]),
        "option 'credentials' is empty; leave it out for 'adc'"
    );
}

#[test]
fn the_page_of_options_in_the_docs_is_the_table() {
    // UPDATE_EXPECT=1 writes it.
    expect_test::expect_file!["../../../docs/options.md"].assert_eq(&describe());
}

#[test]
fn refused_rows_need_a_table_of_their_own() {
    let dead_letter = |more: &[(&'static str, &'static str)]| {
        let mut options = vec![("row_errors", "dead_letter")];
        options.extend(more);
        options
    };
    let table = |table| dead_letter(&[("dead_letter.table", table)]);
    let RowErrors::DeadLetter { max_ratio, .. } = parse(&table("refused")).unwrap().row_errors else {
        panic!("dead letters were asked for");
    };
    assert_eq!(max_ratio, 0.1);
    assert_eq!(
        refusal(&dead_letter(&[])),
        "option 'dead_letter.table' is required with row_errors = 'dead_letter': the table that refused rows go to"
    );
    assert_eq!(
        refusal(&table("orders$20260131")),
        "option 'dead_letter.table' names the table that the rows go to; refused rows need another one"
    );
    let wrong_name = refusal(&table("a/b"));
    assert!(
        wrong_name.starts_with("option 'dead_letter.table': "),
        "{wrong_name}"
    );
    for option in [("dead_letter.table", "refused"), ("dead_letter.max_ratio", "0.5")] {
        assert_eq!(
            refusal(&[option]),
            format!(
                "option '{}' has no use without row_errors = 'dead_letter'",
                option.0
            )
        );
    }
    for ratio in ["-0.1", "1.01", "10 %", "NaN", ""] {
        let options = dead_letter(&[("dead_letter.table", "refused"), ("dead_letter.max_ratio", ratio)]);
        assert_eq!(
            refusal(&options),
            format!(
                "option 'dead_letter.max_ratio': '{ratio}' is not accepted; accepted is a number from 0 to 1"
            )
        );
    }
    for (ratio, expected) in [("0", 0.0), ("1", 1.0), (" 0.01 ", 0.01)] {
        let options = dead_letter(&[("dead_letter.table", "refused"), ("dead_letter.max_ratio", ratio)]);
        let RowErrors::DeadLetter { max_ratio, .. } = parse(&options).unwrap().row_errors else {
            panic!("dead letters were asked for");
        };
        assert_eq!(max_ratio, expected);
    }
}
