//! `repair` refuses where it could do harm: without room, where its copy has no name, and before what
//! a newer build may have written. Nothing is changed then.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use common::*;
use saguin_log_engine::format::{
    FORMAT_VERSION, SEGMENT_HEADER_BYTES, SegmentHeader, decode_frame,
};

/// A damaged log in a directory of its own, with room beside it.
fn damaged() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let engine = open(&dir);
    fill(&engine);
    close(engine, &dir);
    edit(&segments(&dir)[1], |bytes| {
        bytes[SEGMENT_HEADER_BYTES + 300] ^= 1
    });
    assert_eq!(inspect("verify", &dir, &[]).code, 1);
    (root, dir)
}

/// Refused for this reason, and nothing in or beside the directory is touched.
fn refused(root: &Path, dir: &Path, args: &[&str], why: &str) {
    let before = everything(root);
    let answer = inspect("repair", dir, args);
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (1, ""),
        "{}",
        answer.err
    );
    assert!(answer.err.contains(why), "{}", answer.err);
    assert!(before == everything(root), "{why}: something was changed");
}

#[test]
fn without_room_for_the_copy_and_the_new_log_nothing_is_begun() {
    let (root, dir) = damaged();
    // Longer than any disk this runs on has room for, though it takes none itself.
    let ballast = std::fs::File::create(dir.join("ballast")).unwrap();
    ballast.set_len(8 << 40).unwrap();
    drop(ballast);
    let before: Vec<_> = std::fs::read_dir(root.path()).unwrap().collect();
    let contents = || {
        segments(&dir)
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect::<Vec<_>>()
    };
    let segments_before = contents();
    let answer = inspect("repair", &dir, &["--yes"]);
    assert_eq!((answer.code, answer.out.as_str()), (1, ""));
    let why = "bytes free, and the copy and the repair take up to ";
    assert!(answer.err.contains(why), "{}", answer.err);
    assert!(answer.err.contains("nothing was changed"), "{}", answer.err);
    assert_eq!(
        std::fs::read_dir(root.path()).unwrap().count(),
        before.len()
    );
    assert!(segments_before == contents());
    std::fs::remove_file(dir.join("ballast")).unwrap();
    assert_eq!(inspect("repair", &dir, &["--yes"]).code, 0, "with room");
}

#[test]
fn a_name_that_is_taken_is_never_written_over() {
    let (root, dir) = damaged();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    // Whichever second it comes to.
    let names = (now..now + 900).map(|s| root.path().join(format!("data.before-repair-{s}")));
    let names: Vec<_> = names.collect();
    for name in &names {
        std::fs::write(name, "mine").unwrap();
    }
    refused(
        root.path(),
        &dir,
        &["--yes"],
        "exists already; nothing was changed",
    );
    for name in &names {
        std::fs::remove_file(name).unwrap();
    }
    assert_eq!(inspect("repair", &dir, &["--yes"]).code, 0);
}

/// CRC32C, bit by bit, of what follows something that has the checksum `before`.
fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1))
        })
    })
}

#[test]
fn a_segment_of_a_newer_format_is_left_to_the_build_that_wrote_it() {
    let (root, dir) = damaged();
    edit(&segments(&dir)[2], |bytes| {
        bytes[12..16].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let crc = crc32c(0, &bytes[12..SEGMENT_HEADER_BYTES]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    });
    for args in [&[][..], &["--yes"], &["--json"]] {
        let why = format!(
            "segment format {}, written by \"saguin ",
            FORMAT_VERSION + 1
        );
        refused(root.path(), &dir, args, &why);
        refused(root.path(), &dir, args, "use that build");
    }
    let verdict = inspect("verify", &dir, &[]);
    assert_eq!(verdict.code, 1);
    assert!(
        verdict.out.contains("this build reads format"),
        "{}",
        verdict.out
    );
}

#[test]
fn an_operation_of_a_newer_build_is_left_to_it() {
    let (root, dir) = damaged();
    edit(&segments(&dir)[2], |bytes| {
        let salt = SegmentHeader::decode(bytes).unwrap().salt;
        let prologue = SEGMENT_HEADER_BYTES;
        let len = decode_frame(&bytes[prologue..], salt)
            .unwrap()
            .header
            .frame_len();
        let at = prologue + len as usize;
        let frame = decode_frame(&bytes[at..], salt).unwrap().header;
        let end = at + frame.frame_len() as usize;
        // The kind of its first operation.
        bytes[at + 32] = 200;
        let crc = crc32c(salt, &bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    });
    for args in [&[][..], &["--yes"]] {
        refused(
            root.path(),
            &dir,
            args,
            "operation kind 200 is unknown to this build",
        );
    }
}
