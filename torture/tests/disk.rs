//! The simulated disk keeps to its own rules: a disk that is too kind hides defects, one that is too
//! cruel invents them.

use std::path::Path;

use saguin_log_engine::storage::FileSystem;
use saguin_torture::disk::{End, Fault, SECTOR, SimDisk};
use saguin_torture::rng::Rng;

const FILE: &str = "/d/f";

/// A disk with one durable file of four sectors of ones.
fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(Rng::new(seed));
    let fs = disk.process();
    fs.create_dir_all(Path::new("/d")).expect("mkdir");
    let file = fs.create(Path::new(FILE)).expect("create");
    file.write_all_at(&[1; 4 * SECTOR], 0).expect("write");
    file.sync_data().expect("sync");
    fs.sync_dir(Path::new("/d")).expect("sync dir");
    fs.sync_dir(Path::new("/")).expect("sync dir");
    disk
}

fn content(disk: &SimDisk) -> Option<Vec<u8>> {
    disk.files().remove(Path::new(FILE))
}

#[test]
fn what_was_synced_is_there_and_what_was_not_comes_in_whole_sectors_in_any_order() {
    let (mut first_only, mut second_only) = (false, false);
    for seed in 0..200 {
        let disk = disk(seed);
        let file = disk.process().open(Path::new(FILE), true).expect("open");
        file.write_all_at(&[2; 2 * SECTOR], SECTOR as u64)
            .expect("write");
        disk.power_cut();
        let now = content(&disk).expect("a synced file");
        let sectors: Vec<&[u8]> = now.chunks(SECTOR).collect();
        assert_eq!((sectors[0][0], sectors[3][0]), (1, 1));
        for sector in &sectors {
            assert!(sector.iter().all(|b| *b == sector[0]), "a torn sector");
        }
        first_only |= sectors[1][0] == 2 && sectors[2][0] == 1;
        second_only |= sectors[1][0] == 1 && sectors[2][0] == 2;
    }
    assert!(first_only && second_only);
}

#[test]
fn a_process_that_dies_loses_nothing_it_wrote_and_syncs_nothing() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = disk(seed);
        let file = disk.process().open(Path::new(FILE), true).expect("open");
        file.write_all_at(&[2; 10], 0).expect("write");
        disk.next_process();
        assert!(file.write_all_at(&[3; 10], 0).is_err(), "a dead process");
        assert_eq!(content(&disk).expect("file")[..10], [2; 10]);
        disk.power_cut();
        lost += usize::from(content(&disk).expect("file")[..10] == [1; 10]);
    }
    assert!((5..45).contains(&lost), "{lost}");
}

#[test]
fn a_failed_sync_gives_up_pages_that_no_later_sync_brings_back() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = disk(seed);
        let file = disk.process().open(Path::new(FILE), true).expect("open");
        file.write_all_at(&[2; 10], 0).expect("write");
        disk.set_fault(Some((0, Fault::Io)));
        assert!(file.sync_data().is_err());
        assert_eq!(content(&disk).expect("file")[..10], [2; 10], "still shown");
        file.sync_data().expect("the next sync works");
        disk.power_cut();
        lost += usize::from(content(&disk).expect("file")[..10] == [1; 10]);
    }
    assert!((5..45).contains(&lost), "{lost}");
}

#[test]
fn names_are_durable_once_their_directory_is_synced_and_not_before() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..50 {
        let disk = disk(seed);
        let fs = disk.process();
        fs.rename(Path::new(FILE), Path::new("/d/g"))
            .expect("rename");
        disk.power_cut();
        let files = disk.files();
        assert_eq!(files.len(), 1, "a rename is whole or absent: {files:?}");
        if files.contains_key(Path::new(FILE)) {
            lost += 1;
            let fs = disk.process();
            fs.rename(Path::new(FILE), Path::new("/d/g"))
                .expect("rename");
            fs.sync_dir(Path::new("/d")).expect("sync dir");
            disk.power_cut();
            assert!(disk.files().contains_key(Path::new("/d/g")), "synced");
        } else {
            kept += 1;
        }
    }
    assert!(kept > 5 && lost > 5, "{kept} {lost}");
}

#[test]
fn a_fuse_ends_the_process_at_its_operation_and_nothing_it_does_counts_after() {
    let disk = disk(1);
    let file = disk.process().open(Path::new(FILE), true).expect("open");
    disk.set_fuse(Some((1, End::Cut)));
    file.write_all_at(&[2; 10], 0).expect("before the end");
    assert!(file.write_all_at(&[3; 10], 600).is_err(), "the end");
    assert_eq!(disk.ended(), Some(End::Cut));
    let then = content(&disk);
    assert!(file.write_all_at(&[4; 10], 1200).is_err() && file.sync_data().is_err());
    assert_eq!(content(&disk), then);
}

#[test]
fn a_full_disk_takes_what_fits_and_says_so() {
    let disk = disk(1);
    disk.set_free(Some(100));
    let file = disk.process().open(Path::new(FILE), true).expect("open");
    file.write_all_at(&[2; 200], 0).expect("no growth");
    let error = file.write_all_at(&[2; 200], 4 * SECTOR as u64);
    let error = error.expect_err("no room");
    assert!(saguin_log_engine::storage::is_no_space(&error));
    assert_eq!(content(&disk).expect("file").len(), 4 * SECTOR + 100);
    assert!(file.allocate(10_000).is_err());
    disk.set_free(None);
    file.allocate(10_000).expect("room again");
}
