# GoogleTest: one executable a file, since some replace operator new or malloc.
find_package(GTest REQUIRED)

file(GLOB HYALITE_CPP_TESTS CONFIGURE_DEPENDS tests/cpp/test_*.cpp)
foreach(file IN LISTS HYALITE_CPP_TESTS)
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE hyalite_core GTest::gtest GTest::gtest_main ${CMAKE_DL_LIBS})
  target_compile_definitions(${name} PRIVATE HYALITE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    HYALITE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(name MATCHES "opencl")
    find_package(OpenCL REQUIRED)
    target_link_libraries(${name} PRIVATE OpenCL::OpenCL)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900)
endforeach()
