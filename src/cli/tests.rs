use std::path::Path;

use super::*;

const CONFIG: &str = "\
broker:
  id: edge-1
  storage:
    default: main
    default_retention_period: 7d
    default_retention_bytes: none
    providers:
      main: {type: log, log_dir: /var/lib/saguin}
channels:
  events: {type: append, filter: 'a/events/#'}
  state: {type: latest, filter: 'a/state/#'}
  jobs: {type: queue, filter: 'a/jobs/#'}
";

struct Ran {
    code: u8,
    output: String,
    errors: String,
    served: Option<(Config, LogFormat)>,
}

fn run_in(dir: &Path, args: &[&str], input: &[u8], broker: Result<(), &'static str>) -> Ran {
    let path = dir.join("config.yaml");
    if !path.exists() {
        std::fs::write(&path, CONFIG).unwrap();
    }
    let path = path.display().to_string();
    let args = args
        .iter()
        .map(|arg| if *arg == "FILE" { path.as_str() } else { arg });
    let args: Vec<&str> = std::iter::once("saguin").chain(args).collect();
    let (mut input, mut output, mut errors) = (input, vec![], vec![]);
    let mut served = None;
    let code = run_with(
        args,
        |config, format| {
            served = Some((config, format));
            broker.map_err(Into::into)
        },
        &mut Streams {
            input: &mut input,
            output: &mut output,
            errors: &mut errors,
        },
    );
    Ran {
        code,
        output: String::from_utf8(output).unwrap(),
        errors: String::from_utf8(errors).unwrap(),
        served,
    }
}

fn run_args(args: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), args, b"", Ok(()))
}

#[test]
fn the_definition_of_the_command_line_holds_together() {
    use clap::CommandFactory;
    Arguments::command().debug_assert();
}

#[test]
fn running_hands_the_configuration_over() {
    let ran = run_args(&["--config", "FILE"]);
    assert_eq!(ran.code, SUCCESS, "{}", ran.errors);
    let (config, format) = ran.served.unwrap();
    assert_eq!(config.broker.id, "edge-1");
    assert_eq!(format, LogFormat::Text);
    let ran = run_args(&["--config", "FILE", "--log-format", "json"]);
    assert_eq!(ran.served.unwrap().1, LogFormat::Json);
}

#[test]
fn a_broker_that_fails_is_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run_in(dir.path(), &["--config", "FILE"], b"", Err("no disk"));
    assert_eq!(ran.code, FAILURE);
    assert_eq!(ran.errors, "saguin: no disk\n");
}

#[test]
fn an_invalid_configuration_is_exit_code_2_with_every_finding() {
    for command in ["--config", "--check-config", "--route"] {
        let dir = tempfile::tempdir().unwrap();
        let broken = CONFIG.replace("edge-1", "7").replace("latest", "newest");
        std::fs::write(dir.path().join("config.yaml"), broken).unwrap();
        let ran = run_in(dir.path(), &[command, "FILE"], b"", Ok(()));
        assert_eq!(ran.code, INVALID);
        assert_eq!(ran.errors.lines().count(), 2, "{}", ran.errors);
        assert!(ran.errors.contains("config.yaml:2:7: `broker.id`"));
        assert_eq!(ran.output, "");
        assert!(ran.served.is_none());
    }
    let ran = run_args(&["--config", "/nowhere/config.yaml"]);
    assert_eq!(ran.code, INVALID);
    assert!(ran.errors.contains("cannot be read"));
}

#[test]
fn usage_errors_are_exit_code_2_and_answers_are_0() {
    for args in [
        &[][..],
        &["--confg", "FILE"],
        &["--config"],
        &["--config", "FILE", "--output"],
        &["--config", "FILE", "a/b"],
        &["--config", "FILE", "--check-config", "FILE"],
        &["--check-config", "FILE", "--json"],
        &["--config", "FILE", "--log-format", "xml"],
    ] {
        let ran = run_args(args);
        assert_eq!(ran.code, INVALID, "{args:?}");
        assert!(!ran.errors.is_empty(), "{args:?}");
        assert!(ran.served.is_none());
    }
    let version = run_args(&["--version"]);
    assert_eq!(version.code, SUCCESS);
    let expected = format!("saguin {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version.output, expected);
    let help = run_args(&["--help"]);
    assert_eq!(help.code, SUCCESS);
    assert!(help.output.contains("--check-config"));
}

#[test]
fn checking_prints_the_channels_dead_letters_included() {
    let dir = tempfile::tempdir().unwrap();
    let log_dir = dir.path().join("log");
    let text = CONFIG.replace("/var/lib/saguin", &log_dir.display().to_string());
    std::fs::write(dir.path().join("config.yaml"), text).unwrap();
    let ran = run_in(dir.path(), &["--check-config", "FILE"], b"", Ok(()));
    assert_eq!(ran.code, SUCCESS, "{}", ran.errors);
    let expected = "\
# channel\ttype\tfilter\tstorage
events\tappend\ta/events/#\tmain
state\tlatest\ta/state/#\tmain
jobs\tqueue\ta/jobs/#\tmain
jobs__dlq\tappend\ta/jobs/__dlq/#\tmain
";
    assert_eq!(ran.output, expected);
    assert!(!log_dir.exists(), "a check creates nothing");
}

#[test]
fn the_output_of_a_check_checks_to_itself() {
    let first = run_args(&["--check-config", "FILE", "--output"]);
    assert_eq!(first.code, SUCCESS, "{}", first.errors);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.yaml"), &first.output).unwrap();
    let args = ["--check-config", "FILE", "--output"];
    let second = run_in(dir.path(), &args, b"", Ok(()));
    assert_eq!(second.code, SUCCESS, "{}", second.errors);
    assert_eq!(second.output, first.output);
}

#[test]
fn a_route_says_which_filter_holds_a_topic() {
    for (subject, row) in [
        ("a/jobs/1", "a/jobs/1\tjobs\tqueue\ta/jobs/#"),
        (
            "a/jobs/__dlq/1",
            "a/jobs/__dlq/1\tjobs__dlq\tappend\ta/jobs/__dlq/#",
        ),
        ("b", "b\t-\tbroadcast\tno channel's filter matches"),
        ("a/state/+", "a/state/+\tstate\tlatest\tcurrent"),
        (
            "$share/g/a/events/#",
            "$share/g/a/events/#\tevents\tappend\tlive",
        ),
        (
            "$saguin/queue/jobs",
            "$saguin/queue/jobs\tjobs\tqueue\toffered",
        ),
        (
            "$saguin/kv/get",
            "$saguin/kv/get\t-\treserved\tthe broker answers it itself",
        ),
        (
            "$SYS/x",
            "$SYS/x\t-\trefused\t0x87: nobody may publish under `$SYS`",
        ),
    ] {
        let ran = run_args(&["--route", "FILE", subject]);
        assert_eq!(ran.code, SUCCESS, "{}", ran.errors);
        let expected = format!("# subject\tchannel\ttype\twhy\n{row}\n");
        assert_eq!(ran.output, expected);
    }
}

#[test]
fn a_filter_has_one_row_for_each_channel_it_reaches() {
    let ran = run_args(&["--route", "FILE", "a/#", "--json"]);
    let expected = r#"{"subject":"a/#","channel":"events","type":"append","why":"replayed"}
{"subject":"a/#","channel":"state","type":"latest","why":"current"}
{"subject":"a/#","channel":"jobs","type":"queue","why":"excluded"}
{"subject":"a/#","channel":"jobs__dlq","type":"append","why":"replayed"}
"#;
    assert_eq!(ran.output, expected);
    let ran = run_args(&["--route", "FILE", "b", "--json"]);
    assert!(ran.output.contains(r#""channel":null,"type":"broadcast""#));
}

#[test]
fn a_list_on_standard_input_is_answered_line_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut input = b"a/events/1\r\n\na/jobs/+\nx\ty\n\xff\n".to_vec();
    input.extend(vec![b'a'; 200_000]);
    input.extend(b"\na/state/x");
    let ran = run_in(dir.path(), &["--route", "FILE"], &input, Ok(()));
    assert_eq!(ran.code, SUCCESS, "{}", ran.errors);
    let rows: Vec<&str> = ran.output.lines().collect();
    assert_eq!(rows[1], "a/events/1\tevents\tappend\ta/events/#");
    assert_eq!(rows[2], "a/jobs/+\tjobs\tqueue\texcluded");
    assert!(rows[3].starts_with("x\\ty\t-\tbroadcast"), "{}", rows[3]);
    assert!(rows[4].contains("\t-\trefused\ta topic is UTF-8"));
    assert!(rows[5].contains("no topic is that long"));
    assert_eq!(rows[6], "a/state/x\tstate\tlatest\ta/state/#");
    assert_eq!(rows.len(), 7);
}

#[test]
fn output_that_cannot_be_written_is_exit_code_1() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut errors = vec![];
    let code = run_with(
        ["saguin", "--version"],
        |_, _| Ok(()),
        &mut Streams {
            input: &mut io::empty(),
            output: &mut Full,
            errors: &mut errors,
        },
    );
    assert_eq!(code, FAILURE);
    assert!(!errors.is_empty());
}
