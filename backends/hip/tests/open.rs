//! Opening a device through this process's HIP library: a clean "not here", or one that works.

use omniheap_core::ErrorKind;
use omniheap_hip::driver::Driver;
use omniheap_stream::MemoryDriver;

#[test]
fn absence_is_clean_and_presence_works() {
    let count = match Driver::count() {
        Ok(count) => count,
        Err(error) => {
            eprintln!("no HIP device here: {error}");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert_eq!(
                Driver::open(0).map(drop).map_err(|error| error.kind()),
                Err(ErrorKind::Unsupported)
            );
            return;
        }
    };
    let driver = Driver::open(0).expect("it was counted");
    let (name, arch) = driver.names().expect("every device has them");
    eprintln!("{count} HIP devices, the first is {name} ({arch})");
    let info = driver.memory_info().expect("every device tells");
    assert!(info.free <= info.total && info.total > 0);
    let beyond = Driver::open(count).map(drop).map_err(|error| error.kind());
    assert_eq!(beyond, Err(ErrorKind::InvalidConfig));
}
