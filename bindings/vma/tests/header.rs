//! The header compiles without a warning, in C and C++ and with the macros that programs set.
mod compile;
use compile::{Outcome, compile};

/// Sets of macros: what programs define ahead of the header.
const MACROS: [&[&str]; 7] = [
    &[],
    &["-DVMA_VULKAN_VERSION=1000000"],
    &["-DVK_NO_PROTOTYPES"],
    &["-DVMA_STATIC_VULKAN_FUNCTIONS=0", "-DVMA_DYNAMIC_VULKAN_FUNCTIONS=0"],
    &[
        "-DVMA_DEBUG_MARGIN=16",
        "-DVMA_DEBUG_DETECT_CORRUPTION=1",
        "-DVMA_DEBUG_INITIALIZE_ALLOCATIONS=1",
    ],
    &[
        "-DOMNIHEAP_VMA_LAYOUT=3003",
        "-DVMA_EXTERNAL_MEMORY=0",
        "-DVMA_GET_PHYSICAL_DEVICE_PROPERTIES2=0",
    ],
    &[
        "-DVMA_CALL_PRE=extern",
        "-DVMA_CALL_POST=",
        "-DVMA_NULLABLE=",
        "-DVMA_NOT_NULL=",
        "-DVMA_STATS_STRING_ENABLED=0",
    ],
];

/// A program that includes the header three times: twice for the declarations, and once for `vmaCreateAllocator`.
const PROGRAM: &str = "\
#include <vk_mem_alloc.h>
#include <vk_mem_alloc.h>
#define VMA_IMPLEMENTATION
#define VMA_DEBUG_LOG(format, ...) takes_a(\"literal: \" format)
#include <vk_mem_alloc.h>
#ifdef VMA_IMPLEMENTATION
#error the header takes the macro away, as VMA does
#endif
VkResult create(const VmaAllocatorCreateInfo *info, VmaAllocator *VMA_NOT_NULL allocator);
VkResult create(const VmaAllocatorCreateInfo *info, VmaAllocator *allocator) {
    return vmaCreateAllocator(info, allocator);
}
";

#[test]
fn the_header_compiles_with_every_set_of_macros() {
    for standard in ["-std=c99", "-std=c++11"] {
        for macros in MACROS {
            compile(standard, PROGRAM, macros).must_not_fail();
        }
    }
    compile("-std=c++20", PROGRAM, &[]).must_not_fail();
}

/// A program of one file, as many tests and samples are: it leans on what the implementation brings.
const ONE_FILE: &str = "\
#define VMA_IMPLEMENTATION
#include <vk_mem_alloc.h>
#if VMA_DEBUG_MARGIN != 32
#error settings of the program are not read
#endif
static std::mutex gate;
int main() {
    std::lock_guard<std::mutex> hold(gate);
    std::atomic<int> count(std::max(1, 2));
    const char *none = VMA_NULL;
    assert(none == nullptr);
    VMA_ASSERT(count > 0);
    std::int32_t number = std::move(count).load();
    std::printf(\"%d\", number);
    return EXIT_SUCCESS;
}
";

#[test]
fn a_program_of_one_file_finds_what_vma_brings() {
    let settings = std::env::temp_dir().join(format!("omniheap_{}.h", std::process::id()));
    std::fs::write(&settings, "#define VMA_DEBUG_MARGIN 32\n").expect("a file of the test's own");
    let include = format!("-DVMA_CONFIGURATION_USER_INCLUDES_H=\"{}\"", settings.to_string_lossy());
    let compiled = ["-std=c++11", "-std=c++20"]
        .map(|standard| compile(standard, ONE_FILE, &[&include, "-Wno-unused-variable"]));
    std::fs::remove_file(settings).expect("it was written");
    compiled.into_iter().for_each(Outcome::must_not_fail);
    let of_c = "#define VMA_IMPLEMENTATION\n#include <vk_mem_alloc.h>\n\
        int main(void) { VMA_ASSERT(VMA_NULL == 0); return 0; }\n";
    compile("-std=c99", of_c, &[]).must_not_fail();
}

/// Functions of volk's table for a device.
const OF_DEVICES: &str = "AllocateMemory FreeMemory MapMemory UnmapMemory FlushMappedMemoryRanges \
    InvalidateMappedMemoryRanges BindBufferMemory BindImageMemory GetBufferMemoryRequirements \
    GetImageMemoryRequirements CreateBuffer DestroyBuffer CreateImage DestroyImage CmdCopyBuffer \
    GetBufferMemoryRequirements2 GetImageMemoryRequirements2 BindBufferMemory2 BindImageMemory2 \
    GetDeviceBufferMemoryRequirements GetDeviceImageMemoryRequirements GetDeviceBufferMemoryRequirementsKHR \
    GetDeviceImageMemoryRequirementsKHR GetBufferMemoryRequirements2KHR GetImageMemoryRequirements2KHR \
    BindBufferMemory2KHR BindImageMemory2KHR";

/// Functions that volk has as global pointers.
const OF_INSTANCES: &str = "GetInstanceProcAddr GetDeviceProcAddr GetPhysicalDeviceProperties \
    GetPhysicalDeviceMemoryProperties GetPhysicalDeviceProperties2 GetPhysicalDeviceMemoryProperties2 \
    GetPhysicalDeviceMemoryProperties2KHR";

/// The part of volk that `vmaImportVulkanFunctionsFromVolk` uses, and a program over it.
fn with_volk() -> String {
    let declared = |names: &str, before: &str| -> String {
        names.split(' ').map(|name| format!("{before}PFN_vk{name} vk{name};\n")).collect()
    };
    let (fields, globals) = (declared(OF_DEVICES, ""), declared(OF_INSTANCES, "extern "));
    format!(
        "#define VK_NO_PROTOTYPES\n#include <vulkan/vulkan.h>\n#define VOLK_HEADER_VERSION 304\n\
         struct VolkDeviceTable {{\n{fields}}};\n{globals}\
         void volkLoadDeviceTable(struct VolkDeviceTable *table, VkDevice device);\n{PROGRAM}\
         VkResult import(const VmaAllocatorCreateInfo *info, VmaVulkanFunctions *to);\n\
         VkResult import(const VmaAllocatorCreateInfo *info, VmaVulkanFunctions *to) {{\n\
             return vmaImportVulkanFunctionsFromVolk(info, to);\n}}\n"
    )
}

#[test]
fn functions_of_volk_are_imported() {
    for standard in ["-std=c99", "-std=c++17"] {
        compile(standard, &with_volk(), &[]).must_not_fail();
    }
}

#[test]
fn the_header_declares_every_function() {
    let header = include_str!("../include/vk_mem_alloc.h");
    let (_, rest) = header.split_once("/* ---- Functions ---- */").expect("its part for functions");
    let (functions, _) = rest.split_once("/* ---- Additions to VMA ---- */").expect("its end");
    let names = functions.split(" VMA_CALL_POST ").skip(1).filter_map(|one| one.split_once('('));
    assert_eq!(names.count(), 76);
}

#[test]
fn the_manager_is_declared_where_its_struct_is_known() {
    let call = "#include <vk_mem_alloc.h>\nvoid show(VmaAllocator of);\nvoid show(VmaAllocator of) { (void)omniheap_vma_manager(of); }\n";
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../c/include");
    for standard in ["-std=c99", "-std=c++11"] {
        let known = format!("#include <omniheap.h>\n{call}");
        compile(standard, &known, &[include]).must_not_fail();
    }
    assert!(!matches!(compile("-std=c++11", call, &[]), Outcome::Compiled), "an incomplete type");
}
