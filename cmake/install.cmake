# find_package(hyalite): headers, the shared library, the package files.
include(CMakePackageConfigHelpers)

install(TARGETS hyalite EXPORT hyalite-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY include/hyalite DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
install(FILES ${PROJECT_BINARY_DIR}/generated/hyalite/ops.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hyalite COMPONENT cpp)
install(EXPORT hyalite-targets NAMESPACE hyalite:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hyalite COMPONENT cpp)
configure_package_config_file(cmake/hyalite-config.cmake.in ${PROJECT_BINARY_DIR}/hyalite-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hyalite)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hyalite-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hyalite-config.cmake ${PROJECT_BINARY_DIR}/hyalite-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hyalite COMPONENT cpp)
