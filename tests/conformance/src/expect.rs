//! Known failures, as data. One that passes is an error: the line is then wrong and goes.
use omniheap_core::DeviceInfo;

/// One known failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The backend's name.
    pub(crate) backend: &'static str,
    /// A part of the device's name.
    pub(crate) device: &'static str,
    /// A part of the driver's name and version.
    pub(crate) driver: &'static str,
    /// The case.
    pub(crate) case: &'static str,
    /// The reason, and where it is followed up.
    pub(crate) reason: &'static str,
}

/// Every known failure.
const KNOWN: &[Known] = &[Known {
    backend: "vulkan",
    device: "NVIDIA",
    driver: "580",
    case: "an_import_that_does_not_match_is_refused",
    reason: "NVIDIA's driver takes an import of less than the block (more is refused), and its descriptors have no length \
             to check",
}];

/// Returns the reason why this case is expected to fail on this device, if it is.
pub(crate) fn known(device: &DeviceInfo, case: &str) -> Option<&'static str> {
    find(KNOWN, device, case)
}

fn find(list: &[Known], device: &DeviceInfo, case: &str) -> Option<&'static str> {
    let fits = |known: &&Known| {
        known.backend == device.backend
            && device.name.contains(known.device)
            && device.driver.contains(known.driver)
            && known.case == case
    };
    list.iter().find(fits).map(|known| known.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_failure_names_its_device() {
        let list = [Known { backend: "x", device: "A1", driver: "", case: "c", reason: "r" }];
        let device =
            |name: &str| DeviceInfo { backend: "x", name: name.into(), ..DeviceInfo::default() };
        assert_eq!(find(&list, &device("an A100"), "c"), Some("r"));
        assert_eq!(find(&list, &device("a B200"), "c"), None);
        assert_eq!(find(&list, &device("an A100"), "d"), None);
    }
}
