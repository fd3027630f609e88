# find_package(VulkanMemoryAllocator CONFIG) gives GPUOpen::VulkanMemoryAllocator, as VMA's own file does; here it is a library, omniheap's.
# GPUOpen::VulkanMemoryAllocatorStatic is the same as an archive. Nothing is searched for, and nothing cached: the files lie beside this one.
get_filename_component(_omniheap_vma_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_omniheap_vma_include "${_omniheap_vma_prefix}/include")
set(_omniheap_vma_shared "${_omniheap_vma_prefix}/lib/libomniheap_vma.so")
set(_omniheap_vma_archive "${_omniheap_vma_prefix}/lib/libomniheap_vma.a")
if(EXISTS "${_omniheap_vma_shared}" AND NOT TARGET GPUOpen::VulkanMemoryAllocator)
  add_library(GPUOpen::VulkanMemoryAllocator SHARED IMPORTED)
  set_target_properties(GPUOpen::VulkanMemoryAllocator PROPERTIES
    IMPORTED_LOCATION "${_omniheap_vma_shared}"
    INTERFACE_INCLUDE_DIRECTORIES "${_omniheap_vma_include}")
endif()
if(EXISTS "${_omniheap_vma_archive}" AND NOT TARGET GPUOpen::VulkanMemoryAllocatorStatic)
  find_package(Threads REQUIRED)
  add_library(GPUOpen::VulkanMemoryAllocatorStatic STATIC IMPORTED)
  set_target_properties(GPUOpen::VulkanMemoryAllocatorStatic PROPERTIES
    IMPORTED_LOCATION "${_omniheap_vma_archive}" INTERFACE_INCLUDE_DIRECTORIES "${_omniheap_vma_include}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()
# Names that VMA has where it is a folder of the program.
foreach(_omniheap_vma_name VulkanMemoryAllocator VulkanMemoryAllocator::Headers)
  if(TARGET GPUOpen::VulkanMemoryAllocator AND NOT TARGET ${_omniheap_vma_name})
    add_library(${_omniheap_vma_name} INTERFACE IMPORTED)
    set_target_properties(${_omniheap_vma_name} PROPERTIES INTERFACE_LINK_LIBRARIES GPUOpen::VulkanMemoryAllocator)
  endif()
endforeach()
if(NOT TARGET GPUOpen::VulkanMemoryAllocator)
  set(VulkanMemoryAllocator_FOUND FALSE)
  set(VulkanMemoryAllocator_NOT_FOUND_MESSAGE
    "no libomniheap_vma.so under ${_omniheap_vma_prefix}/lib; run `cargo xtask install-vma PREFIX`")
endif()
