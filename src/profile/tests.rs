use super::*;
use omniheap_core::Backend as _;
use omniheap_host::Host;

fn caps() -> Caps {
    let mut caps = Host::new().caps().clone();
    caps.device.name = "Test  device 9".into();
    caps.device.driver = "driver 1.2".into();
    caps
}

fn measured() -> Profile {
    let cost = Cost { constant: 37, shared: 81, stage: 412 };
    Profile::ASSUMED.with(Probe::Hops, TableSize::of(4096), cost).with_window(140)
}

#[test]
fn what_is_written_is_read_back() {
    let text = format(&measured(), &caps());
    assert_eq!(parse(&text, &caps()).expect("its own text"), measured());
    assert!(text.len() < usize::try_from(LONGEST).expect("small"));
}

#[test]
fn what_is_no_profile_is_refused_with_its_line() {
    let line = |text: &str| match parse(text, &caps()) {
        Err(ProfileError::Line { number }) => number,
        other => panic!("{other:?}"),
    };
    let head = format!("{HEADER}\ndevice Test device 9\ndriver driver 1.2\n");
    assert_eq!(line(""), 1);
    assert_eq!(line("omniheap profile 3\n"), 1);
    assert_eq!(line(&format!("{HEADER}\n")), 2);
    assert_eq!(line(&format!("{HEADER}\ndevice Test device 9\nwhole 256 1 2 3\n")), 3);
    assert_eq!(line(&format!("{head}whole 256 1 2\n")), 4);
    assert_eq!(line(&format!("{head}whole 256 1 2 3\nsideways 256 1 2 3\n")), 5);
    assert_eq!(line(&format!("{head}whole 300 1 2 3\n")), 4, "no class ends there");
    assert_eq!(line(&format!("{head}whole 256 NaN 2 3\n")), 4);
    assert_eq!(line(&format!("{head}whole 256 1 2 99999999\n")), 4);
    assert_eq!(line(&format!("{head}window -1\n")), 4);
    assert_eq!(line(&format!("{head}\n")), 4, "an empty line is no entry");
}

#[test]
fn a_profile_of_another_device_or_driver_is_refused_with_both_names() {
    let text = format(&measured(), &caps());
    let refused = |change: fn(&mut Caps)| {
        let mut here = caps();
        change(&mut here);
        parse(&text, &here).expect_err("foreign").to_string()
    };
    let device = refused(|caps| caps.device.name = "Other".into());
    assert!(device.contains("Test device 9") && device.contains("Other"), "{device}");
    let driver = refused(|caps| caps.device.driver = "driver 1.3".into());
    assert!(driver.contains("driver 1.2") && driver.contains("driver 1.3"), "{driver}");
}

#[test]
fn files_are_judged_as_they_are_found() {
    let folder = env::temp_dir().join(format!("omniheap-profiles-{}", std::process::id()));
    let path = folder.join("one.profile");
    write_profile(&path, &measured(), &caps()).expect("written, with its folder");
    assert_eq!(read_profile(&path, &caps()).expect("read"), measured());
    fs::write(&path, vec![b'x'; 9000]).expect("written");
    let long = read_profile(&path, &caps());
    assert!(matches!(long, Err(ProfileError::TooLong { size: 9000 })), "{long:?}");
    fs::remove_dir_all(&folder).expect("removed");
    assert!(matches!(read_profile(&path, &caps()), Err(ProfileError::Io(_))));
}
